// SPDX-License-Identifier: Apache-2.0
// Presets and configured encoders as models: what each takes and gives.
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

struct TensorSlot {
  std::string name;
  Role role = Role::kOutput;
  Dtype dtype = Dtype::kFloat32;  // one of those accepted; the protocol has room for one
  std::vector<int64_t> shape;     // -1: any extent
  bool optional = false;
  int index = 0;  // of Role::kTensor: which of them
};

struct Model {
  std::string name;
  std::string summary;
  std::string source;
  ModelKind kind = ModelKind::kEncoding;
  const BiasPreset* bias = nullptr;  // of a bias model
  Spec spec;                         // of others: what parameters of a request override
  std::string fingerprint;           // of an encoder; empty: parameters may be missing
  std::vector<std::string> required_parameters;
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> outputs;
};

// Calls in flight keep their model, whatever a reload does.
using ModelRef = std::shared_ptr<const Model>;

// Every preset is a model, and every encoder of a configuration, which takes the place of a preset
// of its name. Immutable. Threads: any.
class ModelSet {
 public:
  explicit ModelSet(const EncoderSet& encoders = {});

  // By name in alphabetical order.
  absl::Span<const ModelRef> models() const { return models_; }
  // The model of that name, or nullptr.
  ModelRef Find(std::string_view name) const;
  // Up to 128 names around it in the alphabet, to suggest one of: an error must not cost more for
  // more models.
  std::vector<std::string> NamesNear(std::string_view name) const;

 private:
  // Where that name is, or would be.
  size_t FirstFrom(std::string_view name) const;

  std::vector<ModelRef> models_;
};

// The models of a running server, which a reload replaces. Threads: any.
class ModelCatalogue {
 public:
  void Replace(const EncoderSet& encoders);
  std::shared_ptr<const ModelSet> Get() const;

 private:
  mutable Mutex mu_;
  std::shared_ptr<const ModelSet> set_ ABSL_GUARDED_BY(mu_) = std::make_shared<const ModelSet>();
};

// "POSITIONS, Q, K".
std::string NamesOf(absl::Span<const TensorSlot> slots);

// The only version there is.
inline constexpr char kModelVersion[] = "1";
inline constexpr char kPlatform[] = "phasor";

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_
