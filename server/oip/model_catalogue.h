// SPDX-License-Identifier: Apache-2.0
// Presets as models: what each takes and gives. Pure values.
#ifndef PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_
#define PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/bias_rule.h"
#include "kernels/dtype.h"
#include "kernels/presets.h"

namespace phasor::oip {

enum class ModelKind : uint8_t { kEncoding, kRotary, kBias };

// What a tensor is to the computation.
enum class TensorRole : uint8_t {
  kPositions,
  kFromPositions,
  kEmbeddings,  // added to the encoding
  kQ,
  kK,
  kQueryPositions,
  kKeyPositions,
  kScores,  // added to the bias
  kTable,   // rows of a learned bias
  kOutput,
};

struct TensorSlot {
  std::string name;
  TensorRole role = TensorRole::kOutput;
  Dtype dtype = Dtype::kFloat32;  // one of those accepted; the protocol has room for one
  std::vector<int64_t> shape;     // -1: any extent
  bool optional = false;
};

struct Model {
  std::string name;
  std::string summary;
  std::string source;
  ModelKind kind = ModelKind::kEncoding;
  const BiasPreset* bias = nullptr;  // of a bias model; others are presets of that name
  std::vector<std::string> required_parameters;
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> outputs;
};

// By name in alphabetical order. Lives for ever.
absl::Span<const Model> Models();

// The model of that name, or nullptr.
const Model* FindModel(std::string_view name);

// "POSITIONS, Q, K".
std::string NamesOf(absl::Span<const TensorSlot> slots);

// The only version there is.
inline constexpr char kModelVersion[] = "1";
inline constexpr char kPlatform[] = "phasor";

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_CATALOGUE_H_
