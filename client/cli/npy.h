// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, versions 1 to 3: little endian, C order, the element types of tensors. NumPy
// has no bfloat16: it travels as u2, its bits, when the caller says so.
#ifndef PHASOR_CLIENT_CLI_NPY_H_
#define PHASOR_CLIENT_CLI_NPY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tensor.h"
#include "kernels/dtype.h"
#include "kernels/request.h"

namespace phasor::cli {

// Threads: a plain value. Owns its bytes.
struct NpyArray {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  Bytes bytes;

  MutableTensorView view() { return {{dtype, shape, {}}, bytes.data(), bytes.size()}; }
};

// What a file says before its data.
struct NpyHeader {
  TensorDesc tensor;
  int64_t data_begin = 0;  // offset of the first element in the file
  int64_t data_bytes = 0;
};

// Reads the header of a file that begins with `start` (at least the header, or the whole file) and
// is `file_bytes` long. INVALID_ARGUMENT "<path>: ...": not .npy, malformed, an element type, order
// or byte order that is not read, or less data than the shape says.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view start, int64_t file_bytes,
                                         bool u2_as_bf16, std::string_view path);

// NOT_FOUND: no such file. INVALID_ARGUMENT: as ParseNpyHeader. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path, bool u2_as_bf16);

// The bytes before the data of a dense tensor.
std::string FormatNpyHeader(const TensorDesc& tensor);

// INTERNAL: the file cannot be written. BFLOAT16 is written as u2. Dense tensors only.
absl::Status WriteNpy(const std::string& path, const TensorView& tensor);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_NPY_H_
