// SPDX-License-Identifier: Apache-2.0
// Headers of NumPy's .npy files, versions 1 to 3: little endian, C order, the element types of
// tensors. NumPy has no bfloat16: it travels as u2, its bits, when the caller says so.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_NPY_H_
#define PHASOR_KERNELS_TENSOR_NPY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

// What a file says before its data.
struct NpyHeader {
  TensorDesc tensor;
  int64_t data_begin = 0;  // offset of the first element in the file
  int64_t data_bytes = 0;
};

// Longest text of a header. The first kMaxNpyHeaderBytes + 16 bytes of a file hold its header.
inline constexpr int64_t kMaxNpyHeaderBytes = 1 << 20;

// Reads the header of a file that begins with `start` (at least the header, or the whole file) and
// is `file_bytes` long. INVALID_ARGUMENT "<path>: ...": not .npy, malformed, an element type, order
// or byte order that is not read, or less data than the shape says.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view start, int64_t file_bytes,
                                         bool u2_as_bf16, std::string_view path);

// The bytes before the data of a dense tensor.
std::string FormatNpyHeader(const TensorDesc& tensor);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_NPY_H_
