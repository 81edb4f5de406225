// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/neighbours.h"

#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "kernels/base/text.h"
#include "kernels/request/key_layouts.h"
#include "kernels/spec/names.h"

namespace phasor::cli {
namespace {

std::string Short(double value) { return absl::StrFormat("%.10g", value); }

// Replaces the specification by a changed one, if there is such a one.
template <typename Edit>
bool ChangeSpec(LayerCase* layer, Edit edit) {
  if (!layer->spec.has_value()) return false;
  const auto before = ResolveSpec(*layer->spec);
  if (!before.ok()) return false;
  Spec spec = ToSpec(*before);
  edit(*before, &spec);
  const auto after = ResolveSpec(spec);
  if (!after.ok() || *after == *before) return false;
  layer->spec = ToSpec(*after);
  return true;
}

// The lanes that rotate.
void SetWindow(int64_t begin, int64_t lanes, Spec* spec) {
  spec->rotary_begin = begin;
  spec->rotary_dim = lanes;
  spec->partial_rotary_factor.reset();
  spec->live_pairs.reset();
  spec->axes_dim.clear();
}

// Adds the changes one after another. Threads: one.
class Neighbours {
 public:
  Neighbours(const LayerCase& layer, double amplitude, const ModelSpecs& model)
      : layer_(layer), amplitude_(amplitude), model_(model) {
    if (!layer.spec.has_value()) return;
    const auto resolved = ResolveSpec(*layer.spec);
    if (resolved.ok()) spec_ = *resolved;
  }

  std::vector<Change> Run() {
    if (spec_.has_value()) {
      AddBases();
      AddScaling();
      AddPairing();
      AddWindows();
      AddAmplitudes();
    }
    AddOtherLayers();
    AddValues();
    AddLayouts();
    AddHadamard();
    AddTokens();
    if (spec_.has_value()) {
      Add("rotation",
          "no rotation: the keys are equal at both offsets, so they are stored before RoPE, or are "
          "values",
          [](LayerCase* layer) {
            layer->spec.reset();
            return true;
          });
    }
    return std::move(changes_);
  }

 private:
  void Add(std::string kind, std::string says, std::function<bool(LayerCase*)> apply) {
    changes_.push_back({std::move(kind), std::move(says), std::move(apply)});
  }

  void AddBases() {
    std::set<double> bases = {10000, 500000, 1000000};
    for (const auto& [number, other] : model_) bases.insert(other.rope_theta);
    bases.erase(spec_->rope_theta);
    for (const double base : bases) {
      Add("rope_theta",
          StrCat("rope_theta ", Short(base), " in place of ", Short(spec_->rope_theta)),
          [base](LayerCase* layer) {
            return ChangeSpec(layer, [base](const ResolvedSpec&, Spec* spec) {
              spec->rope_theta = base;
              spec->axes_theta.clear();
            });
          });
    }
  }

  void AddScaling() {
    if (!IsSet(spec_->rope_scaling)) return;
    Add("scaling", "no scaling: rope_scaling is left out", [](LayerCase* layer) {
      return ChangeSpec(layer, [](const ResolvedSpec&, Spec* spec) {
        spec->rope_scaling = std::monostate();
        spec->sequence_length.reset();
      });
    });
    const auto* const longrope = std::get_if<LongRopeScaling>(&spec_->rope_scaling);
    const int64_t border =
        longrope == nullptr ? 0 : longrope->original_max_position_embeddings.value_or(0);
    if (border <= 0) return;
    for (const bool is_long : {false, true}) {
      Add("scaling", StrCat("LongRoPE's ", is_long ? "long_factor" : "short_factor"),
          [border, is_long](LayerCase* layer) {
            return ChangeSpec(layer, [&](const ResolvedSpec&, Spec* spec) {
              spec->sequence_length = border + (is_long ? 1 : 0);
            });
          });
    }
  }

  // Of the lanes as they are stored, which is all that a move sees: transformers reads pairs of
  // neighbours and stores halves (DeepSeek), other engines leave them where they are.
  void AddPairing() {
    const bool half = spec_->pairing_out == Pairing::kHalfSplit;
    Add("pairing",
        half ? "interleaved pairs (lanes 2j and 2j + 1), as llama.cpp stores them for Llama and "
               "others, and vLLM for DeepSeek: pairing INTERLEAVED"
             : "half-split pairs (lanes j and j + half): pairing HALF_SPLIT",
        [half](LayerCase* layer) {
          return ChangeSpec(layer, [half](const ResolvedSpec&, Spec* spec) {
            spec->pairing = half ? Pairing::kInterleaved : Pairing::kHalfSplit;
            spec->pairing_out = spec->pairing;
          });
        });
  }

  void AddWindow(int64_t begin, int64_t lanes) {
    if (lanes < 2 || lanes % 2 != 0 || begin < 0 || begin + lanes > spec_->head_dim) return;
    Add("window",
        StrCat("a rotary window of lanes [", begin, ", ", begin + lanes, ") in place of [",
               spec_->rotary_begin, ", ", spec_->rotary_begin + spec_->rotary_dim, ")"),
        [begin, lanes](LayerCase* layer) {
          return ChangeSpec(
              layer, [=](const ResolvedSpec&, Spec* spec) { SetWindow(begin, lanes, spec); });
        });
  }

  void AddWindows() {
    const int64_t all = spec_->head_dim;
    std::set<int64_t> widths = {all, all / 2, all / 4, spec_->rotary_dim};
    for (const int64_t lanes : widths) {
      AddWindow(0, lanes);
      if (lanes < all) AddWindow(all - lanes, lanes);
    }
  }

  void AddAmplitudes() {
    if (std::abs(amplitude_ - 1) < 1e-3) return;
    for (const int times : {1, 2, 3, 4, -1}) {
      const double factor = std::pow(amplitude_, times);
      std::string says;
      if (times == 1) {
        says = StrCat("keys that a move multiplied by the amplitude, ", Short(factor),
                      ", once more: a shift must rotate only");
      } else if (times > 1) {
        says = StrCat("keys multiplied ", times, " times by the amplitude, ", Short(factor),
                      " in all: ", times, " shifts, each of which must rotate only");
      } else {
        says = StrCat("keys that lost the amplitude, ", Short(amplitude_), ", in a move");
      }
      Add("amplitude", std::move(says), [factor](LayerCase* layer) {
        if (!layer->spec.has_value()) return false;
        layer->amplitude = factor;
        return true;
      });
    }
  }

  void AddOtherLayers() {
    for (const auto& [number, other] : model_) {
      if (spec_.has_value() && other == *spec_) continue;
      Add("spec", StrCat("the rotation of layer ", number), [other = other](LayerCase* layer) {
        if (other.head_dim != layer->from.layout.head_dim) return false;
        layer->spec = ToSpec(other);
        return true;
      });
    }
  }

  void AddValues() {
    Add("values", "the values' place: keys and values are exchanged",
        [](LayerCase* layer) { return MoveToValues(&layer->from) && MoveToValues(&layer->to); });
  }

  static bool MoveToValues(DumpLayer* side) {
    if (side->values_file.has_value()) {
      side->file = *side->values_file;
      side->offset_bytes = side->values_offset_bytes;
      return true;
    }
    const auto layout = ResolveKeyLayout(side->layout, "layout");
    if (!layout.ok() || !layout->values.has_value() || *layout->values != layout->keys) {
      return false;
    }
    side->offset_bytes += layout->values_offset;
    return true;
  }

  // Layouts of tensors with as many elements, the one with heads and slots exchanged first.
  void AddLayouts() {
    const KeyLayout& given = layer_.from.layout;
    std::string_view order = "BNHD";
    for (const NamedKeyLayout& named : NamedKeyLayouts()) {
      if (named.name == given.name) order = named.order;
    }
    std::string exchanged(order);
    for (char& letter : exchanged) letter = letter == 'N' ? 'H' : letter == 'H' ? 'N' : letter;
    const auto halves = [](std::string_view text) {
      return text.find_first_of("2P") != std::string_view::npos;
    };
    std::vector<std::pair<std::string_view, bool>> names;
    for (const NamedKeyLayout& named : NamedKeyLayouts()) {
      const bool other_size = halves(named.order) != halves(order) ||
                              named.order.find_first_of("WS") != std::string_view::npos ||
                              order.find_first_of("WS") != std::string_view::npos;
      if (named.name == given.name || other_size) continue;
      const bool first = named.order == exchanged;
      names.insert(first ? names.begin() : names.end(), {named.name, first});
    }
    for (const auto& [name, is_exchanged] : names) {
      Add("layout", StrCat("layout ", name, is_exchanged ? ": heads and slots are exchanged" : ""),
          [name = std::string(name)](LayerCase* layer) {
            return Rename(name, &layer->from) && Rename(name, &layer->to);
          });
    }
  }

  // False: the keys lie where they did, or distances were given by hand.
  static bool Rename(const std::string& name, DumpLayer* side) {
    KeyLayout layout = side->layout;
    layout.name = name;
    const bool by_hand = layout.page_bytes || layout.slot_bytes || layout.head_bytes ||
                         layout.lane_bytes || layout.group_bytes || layout.row_bytes ||
                         layout.lanes_offset || layout.scales;
    if (by_hand) return false;
    const auto before = ResolveKeyLayout(side->layout, "layout");
    const auto after = ResolveKeyLayout(layout, "layout");
    if (!before.ok() || !after.ok()) return false;
    if (before->keys == after->keys && before->layer_bytes == after->layer_bytes) return false;
    side->layout = layout;
    return true;
  }

  void AddHadamard() {
    const int64_t given = layer_.from.layout.hadamard;
    const int64_t width = layer_.from.layout.head_dim;
    const int64_t block = given != 0 ? 0 : width & -width;
    if (block == 1) return;
    Add("hadamard",
        block == 0 ? StrCat("no Hadamard transform, in place of one of ", given, " lanes")
                   : StrCat("a Hadamard transform of ", block, " lanes over the keys"),
        [block](LayerCase* layer) {
          layer->from.layout.hadamard = block;
          layer->to.layout.hadamard = block;
          return true;
        });
  }

  void AddTokens() {
    if (spec_.has_value()) {
      const int64_t distance = layer_.tokens->to.front() - layer_.tokens->from.front();
      for (const int64_t more : {1, -1}) {
        Add("distance",
            StrCat("a distance of ", distance + more, " positions in place of ", distance,
                   ": --from or --to, or the engine, is off by one"),
            [more](LayerCase* layer) {
              layer->distance = more;
              return true;
            });
      }
      Add("distance",
          StrCat("a distance of ", -distance, " positions in place of ", distance,
                 ": the sign is wrong, or the caches are exchanged"),
          [](LayerCase* layer) {
            layer->reversed = true;
            return true;
          });
    }
    for (const int64_t shift : {1, -1}) {
      Add("rows",
          StrCat("token i of the first cache and token i ", shift > 0 ? "+" : "-",
                 " 1 of the second: the slots are off by one"),
          [shift](LayerCase* layer) {
            layer->row_shift = shift;
            return true;
          });
    }
  }

  const LayerCase& layer_;
  const double amplitude_;
  const ModelSpecs& model_;
  std::optional<ResolvedSpec> spec_;
  std::vector<Change> changes_;
};

}  // namespace

std::vector<Change> NeighboursOf(const LayerCase& layer, double amplitude,
                                 const ModelSpecs& model) {
  return Neighbours(layer, amplitude, model).Run();
}

bool Combine(const std::string& a, const std::string& b) {
  const auto replaces = [](const std::string& kind) {
    return kind == "rotation" || kind == "spec";
  };
  const auto of_spec = [&](const std::string& kind) {
    return kind == "rope_theta" || kind == "scaling" || kind == "pairing" || kind == "window" ||
           kind == "amplitude" || replaces(kind);
  };
  if (a == b || a == "rotation" || b == "rotation") return false;
  return !(replaces(a) && of_spec(b)) && !(replaces(b) && of_spec(a));
}

}  // namespace phasor::cli
