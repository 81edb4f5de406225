// SPDX-License-Identifier: Apache-2.0
// Finds the width of a head by the keys that the model's class reads, and refuses other names of
// the width that contradict it.
#include "kernels/spec/config_heads.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_keys.h"
#include "kernels/spec/config_layers.h"

namespace phasor {
namespace {

using Keys = std::vector<std::string>;

// Reads the heads of one kind of layers. Borrows `at`. Threads: one thread at a time.
class HeadReader {
 public:
  HeadReader(const ConfigHeads& at, Spec* out) : at_(at), in_(at.in), kind_(at.kind), out_(*out) {}

  absl::Status Run() {
    if (!kind_.latent.empty()) return ReadLatent();
    PHASOR_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDim());
    out_.head_dim = head_dim;
    PHASOR_RETURN_IF_ERROR(CheckAliases(head_dim));
    if (head_dim > kMaxWidth) {
      return Invalid("head_dim", head_dim, " is out of range; must be at most ", kMaxWidth);
    }
    return ReadRotary(head_dim);
  }

 private:
  template <typename... T>
  absl::Status Invalid(std::string_view key, const T&... message) const {
    return InvalidAt(in_.PathOf(key), message...);
  }

  // The value of the first of `keys` that is set.
  absl::StatusOr<std::optional<int64_t>> FirstOf(const Keys& keys) const {
    std::optional<int64_t> value;
    for (const std::string& key : keys) {
      PHASOR_RETURN_IF_ERROR(in_.Read(key, &value));
      if (!value.has_value()) continue;
      if (*value < 1) return Invalid(key, *value, "; must be > 0");
      break;
    }
    return value;
  }

  absl::StatusOr<int64_t> HeadDim() const {
    if (at_.user.head_dim.has_value()) return *at_.user.head_dim;
    PHASOR_ASSIGN_OR_RETURN(const std::optional<int64_t> said, FirstOf(kind_.head_dim_keys));
    for (const std::string& key : kind_.head_dim_keys) {
      PHASOR_ASSIGN_OR_RETURN(const std::optional<int64_t> other, FirstOf({key}));
      if (!other.has_value() || other == said) continue;
      return Invalid(key, *other, " contradicts ", kind_.head_dim_keys[0], " ", *said,
                     "; must be the same");
    }
    if (in_.json().contains("per_layer_config") && at_.model.nested()) {
      // The class uses a width for each kind only if the key is absent; a key that is null is
      // present.
      const bool own = kind_.head_dim_keys != Keys{"head_dim"};
      PHASOR_ASSIGN_OR_RETURN(const auto common, FirstOf({"head_dim"}));
      const std::optional<int64_t> width = at_.layer_width.has_value() ? at_.layer_width : common;
      if (own && said.has_value() && said != width) {
        return Invalid(kind_.head_dim_keys[0], *said,
                       " contradicts per_layer_config; must be absent");
      }
      if (width.has_value()) return *width;
      return WidthWithout(own ? "head_dim" : "");
    }
    if (at_.layer_width.has_value()) return *at_.layer_width;
    if (said.has_value()) return *said;
    for (const std::string& key : kind_.head_dim_keys) {
      // Classes with a constant width take a key that is null for hidden / heads.
      const bool constant = kind_.head_dim > 0 || kind_.head_dim_keys.size() > 1;
      if (!constant || !in_.json().contains(key)) continue;
      return Invalid(key, "null, which model_type ", at_.model.model_type,
                     " does not take for its default; must be absent or a number");
    }
    return WidthWithout("");
  }

  // The width where no key gives it. `of_others`: the default of kinds that read that key.
  absl::StatusOr<int64_t> WidthWithout(std::string_view of_others) const {
    const ConfigKind* kind = &kind_;
    for (const ConfigKind& other : at_.model.kinds) {
      if (!of_others.empty() && other.head_dim_keys == Keys{std::string(of_others)}) kind = &other;
    }
    if (kind->head_dim > 0) return kind->head_dim;
    PHASOR_ASSIGN_OR_RETURN(const auto hidden, FirstOf(kind->hidden_keys));
    PHASOR_ASSIGN_OR_RETURN(const auto heads, FirstOf(kind->heads_keys));
    const int64_t width = hidden.value_or(kind->hidden), count = heads.value_or(kind->heads);
    if (width < 1 || count < 1) {
      return Invalid("head_dim", "not set; must be given without hidden_size and ",
                     "num_attention_heads");
    }
    if (width * kind->hidden_times % count != 0) {
      return Invalid("head_dim", "not set; must be given since ",
                     kind->hidden_keys.empty() ? "hidden_size" : kind->hidden_keys[0], " ", width,
                     " does not split evenly over ", count, " heads");
    }
    return width * kind->hidden_times / count;
  }

  // Other names of the width are not read, but their values must agree with it.
  absl::Status CheckAliases(int64_t head_dim) const {
    for (const char* key : kHeadDimAliases) {
      if (Reads(key) || ReadsAlias()) continue;
      PHASOR_ASSIGN_OR_RETURN(const auto width, FirstOf({key}));
      if (width.value_or(head_dim) == head_dim || at_.user.head_dim.has_value()) continue;
      return Invalid(key, *width, " contradicts head_dim ", head_dim,
                     "; must be the same or beside the spec's own head_dim");
    }
    return absl::OkStatus();
  }

  // A class that reads one of these names has the others for something else.
  bool ReadsAlias() const {
    return std::any_of(std::begin(kHeadDimAliases), std::end(kHeadDimAliases),
                       [this](const char* key) { return Reads(key); });
  }

  bool Reads(std::string_view key) const {
    return std::any_of(at_.model.kinds.begin(), at_.model.kinds.end(), [&](const ConfigKind& kind) {
      return std::find(kind.head_dim_keys.begin(), kind.head_dim_keys.end(), key) !=
             kind.head_dim_keys.end();
    });
  }

  absl::Status ReadRotary(int64_t head_dim) {
    PHASOR_ASSIGN_OR_RETURN(const std::optional<double> factor, PartialFactor());
    if (!factor.has_value()) PHASOR_RETURN_IF_ERROR(CheckShareIsKnown());
    if (at_.rope.proportional) {
      const double live = factor.value_or(Share() > 0 ? Share() : 1);
      out_.rotary_dim = head_dim;
      out_.live_pairs = static_cast<int64_t>(std::floor(live * static_cast<double>(head_dim) / 2));
      return absl::OkStatus();
    }
    const double turned = factor.value_or(Share());
    if (!ReadsShare() && turned != Share() && turned != 0 && turned != 1) {
      return Invalid("partial_rotary_factor", turned, ", model_type ", at_.model.model_type,
                     " rotates ", Share() == 0 ? "whole heads" : StrCat(Share()),
                     "; must be 1 or absent");
    }
    PHASOR_RETURN_IF_ERROR(CheckLanes(head_dim));
    const bool part = turned != 0 && turned != 1;
    const auto lanes = static_cast<int64_t>(static_cast<double>(head_dim) * (part ? turned : 1));
    PHASOR_ASSIGN_OR_RETURN(const std::optional<int64_t> rotary_dim, RotaryDim());
    if (kind_.last_lanes) PHASOR_RETURN_IF_ERROR(ReadLastLanes(rotary_dim.value_or(lanes)));
    if (!rotary_dim.has_value()) {
      if (part) out_.partial_rotary_factor = turned;
      return absl::OkStatus();
    }
    const bool reads = Among(kind_.partial_keys, LanesKey());
    if (*rotary_dim != lanes && (!reads || factor.has_value())) {
      return Invalid(LanesKey(), *rotary_dim, " contradicts ",
                     part ? "partial_rotary_factor" : StrCat("head_dim ", head_dim),
                     "; must be the same");
    }
    out_.rotary_dim = rotary_dim;
    return absl::OkStatus();
  }

  // The key that gives the number of lanes that rotate.
  const char* LanesKey() const {
    constexpr const char* kLatent = "qk_rope_head_dim";
    return Among(kind_.partial_keys, kLatent) ? kLatent : "rotary_dim";
  }

  // Heads whose last `lanes` lanes rotate. A dictionary for each kind that does not say the share
  // would mean whole heads there.
  absl::Status ReadLastLanes(int64_t lanes) {
    if (at_.own_dictionary && !at_.rope.partial_rotary_factor.has_value()) {
      return Invalid("rope_parameters", "without partial_rotary_factor for ", kind_.name,
                     " layers; must have it");
    }
    out_.rotary_begin = std::max<int64_t>(*out_.head_dim - lanes, 0);
    return absl::OkStatus();
  }

  static bool Among(const Keys& keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  // The share of lanes that rotate where no key says it. That of the class's own dictionary goes
  // with it, where the configuration has one for this kind of layers.
  double Share() const {
    if (at_.own_dictionary && !kind_.rope.is_null()) return 0;
    const bool beside = at_.dictionary && kind_.partial_beside_dictionary > 0;
    return beside ? kind_.partial_beside_dictionary : kind_.partial;
  }

  // Classes with a dictionary for each kind of layers have a share of their own only in one without
  // a scaling. Beside a scaling whole heads would rotate, which hardly anyone means.
  absl::Status CheckShareIsKnown() const {
    const bool scaled = at_.rope.proportional || IsSet(at_.rope.scaling);
    if (!at_.own_dictionary || !scaled || !kind_.rope.is_null()) return absl::OkStatus();
    if (!kind_.partial_in_dictionary || !kind_.partial_keys.empty()) return absl::OkStatus();
    if (kind_.partial == 0 || kind_.partial == 1) return absl::OkStatus();
    return Invalid("rope_parameters", "without partial_rotary_factor for ", kind_.name,
                   " layers with a scaling; must have it");
  }

  // Whether the class reads a share. Some read it with a scaling only.
  bool ReadsShare() const {
    if (kind_.partial_in_dictionary) return true;
    const bool scaled = IsSet(at_.rope.scaling);
    return !kind_.partial_keys.empty() && (scaled || kind_.rope.is_null());
  }

  // The number of lanes that rotate, if the configuration gives it. If the key is absent, the
  // model's default applies; null means the whole head.
  absl::StatusOr<std::optional<int64_t>> RotaryDim() const {
    std::optional<int64_t> rotary_dim;
    PHASOR_RETURN_IF_ERROR(in_.Read(LanesKey(), &rotary_dim));
    if (kind_.rotary_dim > 0 && !in_.json().contains(LanesKey())) rotary_dim = kind_.rotary_dim;
    return rotary_dim;
  }

  // For Bamba, some loaders read this number of lanes and others the fraction of its class. They
  // must agree.
  absl::Status CheckLanes(int64_t head_dim) const {
    PHASOR_ASSIGN_OR_RETURN(const auto lanes, FirstOf({"attn_rotary_emb"}));
    if (!lanes.has_value() || 2 * *lanes == head_dim) return absl::OkStatus();
    return Invalid("attn_rotary_emb", *lanes, "; must be half of head_dim ", head_dim);
  }

  // Whether an absent share would be the class's, or that of rotary_dim. To transformers a share of
  // null means whole heads then; to others it means an absent key.
  bool SaysShareElsewhere() const {
    constexpr const char* kLanes = "rotary_dim";
    return (Share() > 0 && Share() < 1) ||
           (Among(kind_.partial_keys, kLanes) && in_.Find(kLanes) != nullptr);
  }

  // The share of lanes that rotate, if the configuration gives it.
  absl::StatusOr<std::optional<double>> PartialFactor() const {
    std::optional<double> factor = at_.rope.partial_rotary_factor;
    const bool own = at_.own_dictionary && factor.has_value();
    for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
      std::optional<double> value;
      if (own) break;
      if (Among(kind_.partial_keys, key) && SaysShareElsewhere() && IsNull(in_, key)) {
        return Invalid(key, "null; must be a number or absent");
      }
      PHASOR_RETURN_IF_ERROR(in_.Read(key, &value));
      if (!value.has_value()) continue;
      if (factor.value_or(*value) != *value) {
        return Invalid(key, *value, " contradicts ", *factor, " of another key; must be the same");
      }
      if (!Among(kind_.partial_keys, key) && kind_.latent.empty() && *value != Share() &&
          !(Share() == 0 && (*value == 1 || !kind_.partial_in_dictionary))) {
        return Invalid(key, *value, " is nothing that model_type ", at_.model.model_type,
                       " reads; must be absent");
      }
      factor = value;
    }
    if (factor.has_value() && !(*factor > 0 && *factor <= 1)) {
      return Invalid("partial_rotary_factor", *factor, "; must be in (0, 1]");
    }
    return factor;
  }

  // Heads of [content | rotary] lanes (DeepSeek). head_dim, if set, is the rotary width or the sum
  // of both. Where the class does not read it, it may be the width of the content, too (GLM 5.2).
  absl::Status ReadLatent() {
    PHASOR_ASSIGN_OR_RETURN(const auto nope_said, FirstOf({"qk_nope_head_dim"}));
    PHASOR_ASSIGN_OR_RETURN(const auto rope_said, FirstOf({"qk_rope_head_dim"}));
    const int64_t nope = nope_said.value_or(kind_.latent[0]);
    const int64_t rope = rope_said.value_or(kind_.latent[1]);
    if (nope < 1) {
      return Invalid("qk_nope_head_dim", "not set; must be given beside qk_rope_head_dim");
    }
    if (rope < 1) return Invalid("qk_rope_head_dim", "not set; must be given");
    if (nope > kMaxWidth || rope > kMaxWidth) {
      return Invalid("qk_rope_head_dim", rope, " beside qk_nope_head_dim ", nope,
                     "; must both be at most ", kMaxWidth);
    }
    PHASOR_ASSIGN_OR_RETURN(const auto head_dim, FirstOf({"head_dim"}));
    const bool content = head_dim == nope && !Among(kind_.head_dim_keys, "head_dim");
    if (head_dim.has_value() && *head_dim != rope && *head_dim != nope + rope && !content) {
      return Invalid("head_dim", *head_dim, " contradicts qk_rope_head_dim ", rope,
                     "; must be that or its sum with qk_nope_head_dim");
    }
    PHASOR_ASSIGN_OR_RETURN(const std::optional<double> factor, PartialFactor());
    const double whole = static_cast<double>(nope + rope);
    if (factor.value_or(1) != 1 && static_cast<int64_t>(whole * *factor) != rope) {
      return Invalid("partial_rotary_factor", *factor, " contradicts qk_rope_head_dim ", rope,
                     "; must agree with it");
    }
    // The rows of a cache of MLA have the rotary lanes of a head alone.
    const bool alone = at_.user.head_dim == rope;
    out_.head_dim = alone ? rope : nope + rope;
    out_.rotary_begin = alone ? 0 : nope;
    out_.rotary_dim = rope;
    return absl::OkStatus();
  }

  const ConfigHeads& at_;
  const JsonObject& in_;
  const ConfigKind& kind_;
  Spec& out_;
};

}  // namespace

absl::Status ReadConfigHeads(const ConfigHeads& heads, Spec* out) {
  return HeadReader(heads, out).Run();
}

}  // namespace phasor
