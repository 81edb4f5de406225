// SPDX-License-Identifier: Apache-2.0
// Models: presets and configured encoders, and the inputs and outputs of each.
#ifndef PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_
#define PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/request/prepared.h"
#include "kernels/spec/encoder_set.h"
#include "kernels/spec/presets.h"
#include "server/base/mutex.h"

namespace phasor::oip {

enum class ModelKind : uint8_t { kEncoding, kRotary, kBias };

// An input or an output of a model.
struct TensorSlot {
  std::string name;
  Role role = Role::kOutput;
  Dtype dtype = Dtype::kFloat32;  // one of those accepted; the protocol can name only one
  std::vector<int64_t> shape;     // -1: any extent
  bool optional = false;
  int index = 0;  // of Role::kTensor: which of the tensors
};

// What clients are told about a model, and what its requests start from.
struct Model {
  std::string name;
  std::string summary;
  std::string source;
  ModelKind kind = ModelKind::kEncoding;
  const BiasPreset* bias = nullptr;  // of a bias model
  Spec spec;                         // of other models; parameters of a request override its fields
  std::string fingerprint;           // of an encoder; empty: a request may have to set parameters
  std::vector<std::string> required_parameters;
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> outputs;
};

// Calls in flight hold a reference, so a reload does not take their model away.
using ModelRef = std::shared_ptr<const Model>;

// The models at one moment: all presets and all configured encoders. An encoder replaces a preset
// of the same name. Immutable. Threads: any.
class ModelSet {
 public:
  explicit ModelSet(const EncoderSet& encoders = {});

  // In alphabetical order of names.
  absl::Span<const ModelRef> models() const { return models_; }
  // The model of that name; nullptr: there is none.
  ModelRef Find(std::string_view name) const;
  // Up to 128 names next to it in alphabetical order, among which errors look for a suggestion. The
  // limit keeps the cost of an error independent of the number of models.
  std::vector<std::string> NamesNear(std::string_view name) const;

 private:
  // The index of the name, or where it would be.
  size_t FirstFrom(std::string_view name) const;

  std::vector<ModelRef> models_;
};

// The models of a running server. A reload replaces them. Threads: any.
class ModelCatalogue {
 public:
  void Replace(const EncoderSet& encoders);
  std::shared_ptr<const ModelSet> Get() const;

 private:
  mutable Mutex mu_;
  std::shared_ptr<const ModelSet> set_ ABSL_GUARDED_BY(mu_) = std::make_shared<const ModelSet>();
};

// The names for error messages: "POSITIONS, Q, K".
std::string NamesOf(absl::Span<const TensorSlot> slots);

// The version of every model; there is no other.
inline constexpr char kModelVersion[] = "1";
inline constexpr char kPlatform[] = "phasor";

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_
