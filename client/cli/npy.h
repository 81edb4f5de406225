// SPDX-License-Identifier: Apache-2.0
// Reads and writes .npy files (kernels/tensor/npy.h) as arrays.
#ifndef PHASOR_CLIENT_CLI_NPY_H_
#define PHASOR_CLIENT_CLI_NPY_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tensor.h"
#include "kernels/base/dtype.h"
#include "kernels/request/request.h"
#include "kernels/tensor/npy.h"

namespace phasor::cli {

// An array and its bytes, which it owns. Threads: a plain value.
struct NpyArray {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  Bytes bytes;

  MutableTensorView view() { return {{dtype, shape, {}}, bytes.data(), bytes.size()}; }
};

// NOT_FOUND: no such file. INVALID_ARGUMENT: as ParseNpyHeader. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path, bool u2_as_bf16);

// Writes a dense tensor; BFLOAT16 is written as u2. INVALID_ARGUMENT: the file cannot be written.
absl::Status WriteNpy(const std::string& path, const TensorView& tensor);
// Writes `parts` to a file. A regular file of that name stays as it is until all is written beside
// it: it may be what was read. The new file has its owner and permissions. Links, files with
// several names, devices, and files whose folder or owner allows no other are written in place.
// INVALID_ARGUMENT: the file cannot be written.
absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> parts);
// Whether `path` leads to where standard output goes, and that is no device.
bool IsStandardOutput(const std::string& path);
// The error for a file that cannot be written, with the reason that errno holds.
absl::Status CannotWrite(const std::string& path);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_NPY_H_
