// SPDX-License-Identifier: Apache-2.0
// Inputs of a request: type, shape and where their bytes are, which have exactly the length that
// type and shape need.
#ifndef PHASOR_SERVER_OIP_INPUT_TENSORS_H_
#define PHASOR_SERVER_OIP_INPUT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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

// Most inputs of a request, and most outputs that it asks for. No model has more than 5.
inline constexpr int kMaxTensors = 64;

// INVALID_ARGUMENT: more than kMaxTensors in `field`.
absl::Status CheckTensorCount(int count, const char* field);

// Part of a client's shared memory, of the host or the device.
struct RegionRange {
  std::string name;  // of the region; empty: the tensor is in the message
  int64_t offset = 0;
  int64_t bytes = 0;

  bool in_message() const { return name.empty(); }
};

// The range that the parameters of a tensor name, if they name one. INVALID_ARGUMENT: a parameter
// that is not known or of another type.
absl::StatusOr<RegionRange> ReadRegionRange(const InferParameters& parameters,
                                            const std::string& path);

// The same for binding a tensor of that type, whose path is "inputs[0]", say.
memory::SharedTensor SharedTensorOf(const RegionRange& range, Dtype dtype, const std::string& path,
                                    const memory::CallerMemory& memory);

struct InputTensor {
  std::string name;
  std::string path;  // "inputs[0]"
  // What it is to the model, once that is known.
  Role role = Role::kTensor;
  int index = 0;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  engine::Segments segments;       // of bytes in the message or in `numbers`
  std::vector<std::byte> numbers;  // that came as typed contents
  RegionRange range;
};

// Reads all inputs; `raw` are the entries of raw_input_contents and are borrowed, one for each
// input that is neither typed nor in shared memory. INVALID_ARGUMENT: too many, a name twice,
// types, shapes, lengths, typed beside raw. Looks for no region.
absl::StatusOr<std::vector<InputTensor>> ReadInputs(const inference::ModelInferRequest& request,
                                                    absl::Span<const engine::Segments> raw);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INPUT_TENSORS_H_
