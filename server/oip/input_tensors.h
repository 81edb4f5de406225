// SPDX-License-Identifier: Apache-2.0
// Reads the inputs of a request: type, shape and where the bytes are. The number of bytes is
// exactly what type and shape need.
#ifndef PHASOR_SERVER_OIP_INPUT_TENSORS_H_
#define PHASOR_SERVER_OIP_INPUT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "kernels/base/dtype.h"
#include "server/engine/call.h"
#include "server/memory/binding.h"

namespace phasor::oip {

using InferParameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Most inputs of a request, and most outputs that it may ask for. No model has more than 5.
inline constexpr int kMaxTensors = 64;

// INVALID_ARGUMENT: `field` has more than kMaxTensors entries.
absl::Status CheckTensorCount(int count, const char* field);

// A range in a client's shared memory, on the host or on a device.
struct RegionRange {
  std::string name;  // of the region; empty: the tensor is in the message
  int64_t offset = 0;
  int64_t bytes = 0;

  bool in_message() const { return name.empty(); }
};

// The range that the parameters of a tensor name; an empty name if they name none.
// INVALID_ARGUMENT: a parameter is unknown or has the wrong type.
absl::StatusOr<RegionRange> ReadRegionRange(const InferParameters& parameters,
                                            const std::string& path);

// The range as memory::Binding takes it. `path` is that of the tensor, e.g. "inputs[0]".
memory::SharedTensor SharedTensorOf(const RegionRange& range, Dtype dtype, const std::string& path,
                                    const memory::CallerMemory& memory);

// One input of a request. Borrows the raw entries of the message.
struct InputTensor {
  std::string name;
  std::string path;  // e.g. "inputs[0]"
  // The input's role in the model, set once that is known.
  Role role = Role::kTensor;
  int index = 0;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  PieceList segments;              // of bytes in the message or in `numbers`
  std::vector<std::byte> numbers;  // bytes of typed contents
  RegionRange range;
};

// Reads all inputs. `raw`: the entries of raw_input_contents, one for each input that has no typed
// contents and is not in shared memory; they are borrowed. INVALID_ARGUMENT: too many inputs, a
// name given twice, a wrong type, shape or length, or both typed and raw contents. Does not look up
// regions.
absl::StatusOr<std::vector<InputTensor>> ReadInputs(const inference::ModelInferRequest& request,
                                                    absl::Span<const PieceList> raw);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INPUT_TENSORS_H_
