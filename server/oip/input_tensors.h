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
#include "server/memory/device_region_store.h"
#include "server/memory/region_store.h"

namespace phasor::oip {

using InferParameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Most inputs of a request, and most outputs that it asks for. No model has more than 5.
inline constexpr int kMaxTensors = 64;

// INVALID_ARGUMENT: more than kMaxTensors in `field`.
absl::Status CheckTensorCount(int count, const char* field);

// Where a caller's memory is looked for, by name.
struct NamedMemory {
  memory::CallerRegions regions = {};
  memory::CallerDevices devices = {};
};

// Part of a client's shared memory, of the host or the device; neither: the tensor is in the
// message.
struct RegionRange {
  std::shared_ptr<const memory::Region> region;
  std::shared_ptr<memory::DeviceRegion> device;
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;

  bool in_message() const { return region == nullptr && device == nullptr; }
};

// The range that the parameters of a tensor name, if they name one. `write`: it is an output.
// INVALID_ARGUMENT: a parameter that is not known or of another type, a range outside the region;
// NOT_FOUND: no such region; FAILED_PRECONDITION, PERMISSION_DENIED: as DeviceRegion::At.
absl::StatusOr<RegionRange> ReadRegionRange(const InferParameters& parameters,
                                            const NamedMemory& memory, bool write,
                                            const std::string& path);

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
  bool direct = false;  // computed on where it lies, on the device
};

// Reads all inputs; `raw` are the entries of raw_input_contents and are borrowed, one for each
// input that is neither typed nor in shared memory. INVALID_ARGUMENT: too many, a name twice,
// types, shapes, lengths, typed beside raw; NOT_FOUND: no such region. Does not read shared memory.
absl::StatusOr<std::vector<InputTensor>> ReadInputs(const inference::ModelInferRequest& request,
                                                    absl::Span<const engine::Segments> raw,
                                                    const NamedMemory& memory);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INPUT_TENSORS_H_
