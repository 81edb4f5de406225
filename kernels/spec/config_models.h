// SPDX-License-Identifier: Apache-2.0
// The table of model_types, models.json: what a Hugging Face config.json leaves to the model's
// code, namely which lanes form a pair, which keys are read, and the values of absent keys.
// tests/conformance/models.py makes it. Threads: pure values and functions.
#ifndef PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
#define PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/json.h"
#include "kernels/spec/spec.h"

namespace phasor {

// What a class has for one kind of its layers.
struct ConfigKind {
  std::string name;  // "full_attention"; empty: all layers are of one kind
  // Where layer_types have other names than the kinds: those of this kind's layers.
  std::vector<std::string> layer_types;
  double theta = 10000;                 // when the config has none
  std::vector<std::string> theta_keys;  // keys beside the dictionary that give the base
  double theta_beside_scaling = 0;      // when the config has a dictionary without a base; 0: theta
  bool only_beside_scaling = false;     // these keys are read only beside a rope_scaling
  bool scales = true;                   // a rope_scaling for all layers applies to this kind
  Json rope;  // the dictionary of a config that has none; null: no scaling
  std::vector<std::string> head_dim_keys;  // the first that is set is the head's width
  int64_t head_dim = 0;                    // when none is; 0: hidden / heads
  std::vector<std::string> hidden_keys, heads_keys;
  int64_t hidden = 0, heads = 0;          // when the config has none
  int64_t hidden_times = 1;               // the width is so many times hidden / heads
  std::vector<int64_t> latent;            // {qk_nope_head_dim, qk_rope_head_dim} by default
  std::vector<std::string> partial_keys;  // keys beside the dictionary that say what share rotates
  bool partial_in_dictionary = false;     // the dictionary may say it, too
  double partial = 0;                     // when the config does not say it; 0: whole heads
  double partial_beside_dictionary = 0;   // when the config has a dictionary; 0: partial
  int64_t rotary_dim = 0;                 // when the config has none; 0: by the share
  bool last_lanes = false;                // the last lanes of a head rotate, not the first
  // Of yarn in a dictionary for all layers, when it gives none; 0: by the formula.
  double yarn_attention_factor = 0;
};

// One model_type, as transformers computes it.
struct ConfigModel {
  std::string model_type;
  std::string observed;  // how the row was found
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  bool backwards = false;    // pairs turn the other way
  bool rope_scaling = true;  // the key rope_scaling is read, not only rope_parameters
  // Of a dictionary for all layers, under either name, only the scaling is read.
  bool flat_scaling_only = false;
  bool rope_interleave = false;  // the key rope_interleave is read
  std::string switch_key;        // layers rotate only where this key has this value
  Json switch_value;
  bool ntk_alpha = false;  // "dynamic" with alpha means NTK by alpha
  std::optional<AxisRule> axis_rule = {};
  std::vector<int64_t> mrope_section;  // when the config has none
  std::vector<std::string> axes;       // names of the axes in order, of image and video models
  bool dealt = false;                  // one ladder over the head; its pairs go to the axes in turn
  std::vector<ConfigKind> kinds;       // at least one
  int64_t layers = 0;                  // when the config has none
  std::vector<std::string> still;      // kinds of layers that do not rotate
  std::vector<std::string> layer_lists;    // keys that are read with an entry per layer
  int64_t no_rope_interval = 0;            // every so many layers one does not rotate
  bool no_rope_from_last = false;          // counted from the last layer
  std::vector<std::string> first_layers;   // kinds of layers when the config lists none
  std::vector<std::string> layer_pattern;  // and of the layers behind these, by number, repeated
  std::string last_layer;                  // the kind of the last layer, whatever is listed
  std::vector<std::string> period_keys;    // keys that make the pattern longer or shorter
  std::vector<std::string> pattern_keys;   // keys that change it in another way
  std::string kinds_key;                   // another name of layer_types
  std::string attention_list;              // the key with the numbers of the layers that attend
  std::string layer_code_key;              // a key that may list the kinds of layers as numbers
  std::map<int64_t, std::string> layer_codes;
  std::optional<ParityArithmetic> parity;  // the class's own rounding; nullopt: not known

  bool vision() const { return !axes.empty(); }
  bool nested() const { return !kinds[0].name.empty(); }
  // The kind with that name, or of layers with that name; the only one, for models whose layers are
  // all of one kind.
  const ConfigKind* Find(std::string_view kind) const;
};

// All known model_types in alphabetical order.
absl::Span<const ConfigModel> ConfigModels();

// The one with that name, or nullptr.
const ConfigModel* FindConfigModel(std::string_view model_type);

// Whether the model_type is known, but its file and `pairing` do not say enough: heads of several
// shapes, positions in an image. Such a spec gives all fields itself (docs/models.md).
bool NeedsOwnFields(std::string_view model_type);

// What is assumed of a model_type that is not known: it reads the ordinary keys. `latent`: its
// heads are [content | rotary] lanes.
ConfigModel GenericConfigModel(bool latent);

// A guess for messages, such as "likely HALF_SPLIT, as in llama": what the model has whose name
// begins alike.
std::string LikelyPairing(std::string_view model_type, bool latent);

// Part of a composite configuration ("text_config") -> the model_type that it has by default. Empty
// where the model_type is not known as a composite one.
const std::map<std::string, std::string, std::less<>>& ConfigParts(std::string_view model_type);

// The release of transformers that the table was made from.
const std::string& ConfigModelsVersion();

// Reads a table. INVALID_ARGUMENT: not of that form.
struct ConfigTable {
  std::string version;
  std::map<std::string, std::map<std::string, std::string, std::less<>>, std::less<>> parts;
  std::vector<ConfigModel> models;
  std::set<std::string, std::less<>> own_fields;  // see NeedsOwnFields
};
absl::StatusOr<ConfigTable> ConfigTableFromJson(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_CONFIG_MODELS_H_
