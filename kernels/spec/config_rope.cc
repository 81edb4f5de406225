// SPDX-License-Identifier: Apache-2.0
// Reads one rope_parameters dictionary: its rope_type, the keys that this type uses, and the
// scaling.
#include "kernels/spec/config_rope.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/config_keys.h"

namespace phasor {
namespace {

// Keys of every rope_type. llama_4_scaling_beta scales queries by position, after the rotation.
constexpr std::string_view kCommonKeys[] = {"rope_type",           "type",
                                            "rope_theta",          "mrope_interleaved",
                                            "mrope_section",       "partial_rotary_factor",
                                            "llama_4_scaling_beta"};

// Reads one dictionary. Borrows it, the model and the lengths. Threads: one thread at a time.
class RopeReader {
 public:
  RopeReader(const JsonObject& dictionary, const ConfigModel& model, const ConfigLengths& lengths)
      : in_(dictionary), model_(model), lengths_(lengths) {}

  absl::StatusOr<ConfigRope> Run() {
    PHASOR_RETURN_IF_ERROR(ReadType());
    PHASOR_RETURN_IF_ERROR(in_.Read("rope_theta", &out_.rope_theta));
    PHASOR_RETURN_IF_ERROR(in_.Read("partial_rotary_factor", &out_.partial_rotary_factor));
    PHASOR_RETURN_IF_ERROR(in_.Read("mrope_interleaved", &out_.mrope_interleaved));
    std::optional<std::vector<int64_t>> sections;
    PHASOR_RETURN_IF_ERROR(in_.Read("mrope_section", &sections));
    out_.mrope_section = std::move(sections).value_or(std::vector<int64_t>{});
    PHASOR_RETURN_IF_ERROR(ReadScaling());
    return std::move(out_);
  }

 private:
  template <typename... T>
  absl::Status Invalid(std::string_view key, const T&... message) const {
    return InvalidAt(in_.PathOf(key), message...);
  }

  // `type` is the older name of rope_type. A file that has both must give the same value. Classes
  // whose kinds of layers have bases of their own do not know it.
  absl::Status ReadType() {
    std::optional<std::string> type, old_type;
    PHASOR_RETURN_IF_ERROR(in_.Read("rope_type", &type));
    PHASOR_RETURN_IF_ERROR(in_.Read("type", &old_type));
    const auto canonical = [](std::string name) {
      if (name == "mrope") return std::string("default");
      return name == "su" ? std::string("longrope") : name;
    };
    const bool old_only = !type.has_value() && canonical(old_type.value_or("default")) != "default";
    if (old_only && model_.nested() && !model_.flat_scaling_only) {
      return Invalid("type", "is nothing that model_type ", model_.model_type,
                     " reads; must be given as rope_type");
    }
    type_ = canonical(type.value_or(old_type.value_or("default")));
    if (old_type.has_value() && canonical(*old_type) != type_) {
      return Invalid("type", Shown(*old_type), " contradicts rope_type ", Shown(*type),
                     "; must be the same");
    }
    return absl::OkStatus();
  }

  absl::Status ReadScaling() {
    if (model_.vision() && model_.axis_rule != AxisRule::kList) return ReadVision();
    if (type_ == "default") return Allow({});
    if (type_ == "linear") return ReadLinear();
    if (type_ == "dynamic") return ReadDynamic();
    if (type_ == "yarn") return ReadYarn();
    if (type_ == "longrope") return ReadLongRope();
    if (type_ == "llama3") return ReadLlama3();
    if (type_ == "proportional") return ReadProportional();
    const std::vector<std::string> known = {"default",      "linear",   "dynamic",
                                            "yarn",         "longrope", "llama3",
                                            "proportional", "mrope",    "su"};
    return Invalid("rope_type", Shown(type_), " is not known", DidYouMean(type_, known),
                   " must be one of ", absl::StrJoin(known, ", "));
  }

  // Fails on a key that is neither common nor among `keys`.
  absl::Status Allow(std::initializer_list<std::string_view> keys) const {
    std::vector<std::string_view> known(keys);
    known.insert(known.end(), std::begin(kCommonKeys), std::end(kCommonKeys));
    for (const auto& [key, value] : in_.json().items()) {
      if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
      return UnknownKey(StrCat(in_.path(), " (rope_type ", type_, ")"), key, known);
    }
    return absl::OkStatus();
  }

  // The extension factor; if it is absent, the quotient of the two lengths.
  absl::StatusOr<double> Factor(int64_t original) const {
    std::optional<double> factor;
    PHASOR_RETURN_IF_ERROR(in_.Read("factor", &factor));
    if (factor.has_value()) return *factor;
    if (!lengths_.max_position_embeddings.has_value()) {
      return Invalid("factor", "not set; must be given without max_position_embeddings");
    }
    return static_cast<double>(*lengths_.max_position_embeddings) / static_cast<double>(original);
  }

  absl::StatusOr<double> Required(std::string_view key) const {
    std::optional<double> value;
    PHASOR_RETURN_IF_ERROR(in_.Read(key, &value));
    if (!value.has_value()) return Invalid(key, "not set; must be given for rope_type ", type_);
    return *value;
  }

  // The length that the model was trained with. It may stand outside the dictionary (Phi-3).
  absl::StatusOr<int64_t> Original() const {
    constexpr std::string_view kKey = "original_max_position_embeddings";
    std::optional<int64_t> inside;
    const std::optional<int64_t>& beside = lengths_.original_max_position_embeddings;
    PHASOR_RETURN_IF_ERROR(in_.Read(kKey, &inside));
    if (inside.has_value() && beside.has_value() && *inside != *beside) {
      return Invalid(kKey, *inside, " contradicts ", *beside, " beside it; must be the same");
    }
    const std::optional<int64_t> length = inside.has_value() ? inside : beside;
    if (!length.has_value()) return Invalid(kKey, "not set; must be given for rope_type ", type_);
    if (*length < 1) return Invalid(kKey, *length, "; must be > 0");
    return *length;
  }

  absl::Status ReadVision() {
    if (type_ != "default" && type_ != "axial") {
      return Invalid("rope_type", Shown(type_), "; must be axial for model_type ",
                     model_.model_type);
    }
    return Allow({});
  }

  absl::Status ReadLinear() {
    PHASOR_RETURN_IF_ERROR(Allow({"factor"}));
    PHASOR_ASSIGN_OR_RETURN(const double factor, Required("factor"));
    out_.scaling = LinearScaling{.factor = factor};
    return absl::OkStatus();
  }

  absl::Status ReadProportional() {
    PHASOR_RETURN_IF_ERROR(Allow({"factor"}));
    std::optional<double> factor;
    PHASOR_RETURN_IF_ERROR(in_.Read("factor", &factor));
    if (factor.has_value()) out_.scaling = LinearScaling{.factor = factor};
    out_.proportional = true;
    return absl::OkStatus();
  }

  absl::Status ReadDynamic() {
    if (model_.ntk_alpha && in_.Find("alpha") != nullptr) return ReadNtkAlpha();
    PHASOR_RETURN_IF_ERROR(Allow({"factor", "original_max_position_embeddings"}));
    PHASOR_ASSIGN_OR_RETURN(const double factor, Required("factor"));
    if (!lengths_.max_position_embeddings.has_value()) {
      return Invalid("factor", "dynamic without max_position_embeddings; set both");
    }
    std::optional<int64_t> original;
    PHASOR_RETURN_IF_ERROR(in_.Read("original_max_position_embeddings", &original));
    if (original.value_or(*lengths_.max_position_embeddings) != *lengths_.max_position_embeddings) {
      return Invalid("original_max_position_embeddings", *original,
                     " contradicts max_position_embeddings ", *lengths_.max_position_embeddings,
                     ", which dynamic scaling starts at; must be the same");
    }
    out_.scaling = NtkScaling{.factor = factor,
                              .dynamic = true,
                              .original_max_position_embeddings = lengths_.max_position_embeddings};
    return absl::OkStatus();
  }

  // Hunyuan: a larger base at every length. Its files also have YaRN's keys, which no code reads.
  absl::Status ReadNtkAlpha() {
    PHASOR_RETURN_IF_ERROR(
        Allow({"alpha", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}));
    PHASOR_ASSIGN_OR_RETURN(const double alpha, Required("alpha"));
    out_.scaling = NtkScaling{.factor = alpha};
    return absl::OkStatus();
  }

  absl::Status ReadYarn() {
    PHASOR_RETURN_IF_ERROR(Allow({"factor", "original_max_position_embeddings",
                                  "max_position_embeddings", "attention_factor", "beta_fast",
                                  "beta_slow", "mscale", "mscale_all_dim", "truncate"}));
    PHASOR_RETURN_IF_ERROR(CheckRepeatedLength());
    YarnScaling yarn;
    PHASOR_ASSIGN_OR_RETURN(yarn.original_max_position_embeddings, Original());
    PHASOR_ASSIGN_OR_RETURN(yarn.factor, Factor(*yarn.original_max_position_embeddings));
    PHASOR_RETURN_IF_ERROR(in_.Read("attention_factor", &yarn.attention_factor));
    PHASOR_RETURN_IF_ERROR(in_.Read("beta_fast", &yarn.beta_fast));
    PHASOR_RETURN_IF_ERROR(in_.Read("beta_slow", &yarn.beta_slow));
    if (IsNull(in_, "truncate")) {
      return Invalid("truncate",
                     "null, which transformers takes for false; must be true, false or absent");
    }
    PHASOR_RETURN_IF_ERROR(in_.Read("truncate", &yarn.truncate));
    PHASOR_RETURN_IF_ERROR(in_.Read("mscale", &yarn.mscale));
    PHASOR_RETURN_IF_ERROR(in_.Read("mscale_all_dim", &yarn.mscale_all_dim));
    // transformers uses these two only if both are present and not 0 and attention_factor is
    // absent.
    const bool mscales = yarn.mscale.value_or(0) != 0 && yarn.mscale_all_dim.value_or(0) != 0;
    if (!mscales || yarn.attention_factor.has_value()) {
      yarn.mscale.reset();
      yarn.mscale_all_dim.reset();
    }
    out_.scaling = yarn;
    return absl::OkStatus();
  }

  // Whether the class reads amplitudes of longrope. Where it is not known, they mean what they say.
  bool ReadsMscales() const { return model_.model_type.empty() || model_.model_type == "phimoe"; }

  // Some files repeat max_position_embeddings in the dictionary. It must be the same.
  absl::Status CheckRepeatedLength() const {
    std::optional<int64_t> inside;
    PHASOR_RETURN_IF_ERROR(in_.Read("max_position_embeddings", &inside));
    const std::optional<int64_t>& beside = lengths_.max_position_embeddings;
    if (!inside.has_value() || !beside.has_value() || *inside == *beside) return absl::OkStatus();
    return Invalid("max_position_embeddings", *inside, " contradicts ", *beside,
                   " beside it; must be the same");
  }

  absl::Status ReadLongRope() {
    PHASOR_RETURN_IF_ERROR(Allow({"factor", "original_max_position_embeddings", "attention_factor",
                                  "short_factor", "long_factor", "short_mscale", "long_mscale"}));
    LongRopeScaling longrope;
    PHASOR_ASSIGN_OR_RETURN(longrope.original_max_position_embeddings, Original());
    std::optional<std::vector<double>> short_factor, long_factor;
    PHASOR_RETURN_IF_ERROR(in_.Read("short_factor", &short_factor));
    PHASOR_RETURN_IF_ERROR(in_.Read("long_factor", &long_factor));
    if (!short_factor.has_value())
      return Invalid("short_factor", "not set; must be given for longrope");
    if (!long_factor.has_value())
      return Invalid("long_factor", "not set; must be given for longrope");
    longrope.short_factor = *std::move(short_factor);
    longrope.long_factor = *std::move(long_factor);
    PHASOR_RETURN_IF_ERROR(in_.Read("attention_factor", &longrope.attention_factor));
    PHASOR_RETURN_IF_ERROR(in_.Read("short_mscale", &longrope.short_mscale));
    PHASOR_RETURN_IF_ERROR(in_.Read("long_mscale", &longrope.long_mscale));
    if (longrope.short_mscale.has_value() && !ReadsMscales()) {
      return Invalid("short_mscale", "is nothing that model_type ", model_.model_type,
                     " reads; must be absent");
    }
    if (longrope.short_mscale.has_value() != longrope.long_mscale.has_value()) {
      return Invalid("short_mscale",
                     "set without the other; must be both or neither of "
                     "short_mscale and long_mscale");
    }
    if (!longrope.attention_factor.has_value() && !longrope.short_mscale.has_value()) {
      PHASOR_ASSIGN_OR_RETURN(longrope.factor, Factor(*longrope.original_max_position_embeddings));
    }
    out_.scaling = std::move(longrope);
    return absl::OkStatus();
  }

  absl::Status ReadLlama3() {
    PHASOR_RETURN_IF_ERROR(Allow(
        {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}));
    Llama3Scaling llama3;
    PHASOR_ASSIGN_OR_RETURN(llama3.factor, Required("factor"));
    PHASOR_ASSIGN_OR_RETURN(llama3.low_freq_factor, Required("low_freq_factor"));
    PHASOR_ASSIGN_OR_RETURN(llama3.high_freq_factor, Required("high_freq_factor"));
    PHASOR_ASSIGN_OR_RETURN(llama3.original_max_position_embeddings, Original());
    out_.scaling = llama3;
    return absl::OkStatus();
  }

  const JsonObject& in_;
  const ConfigModel& model_;
  const ConfigLengths& lengths_;
  std::string type_;
  ConfigRope out_;
};

}  // namespace

absl::StatusOr<ConfigRope> ReadConfigRope(const JsonObject& dictionary, const ConfigModel& model,
                                          const ConfigLengths& lengths) {
  return RopeReader(dictionary, model, lengths).Run();
}

}  // namespace phasor
