// SPDX-License-Identifier: Apache-2.0
// Headers of NumPy's .npy files, versions 1 to 3, in little endian and C order, with the element
// types of tensors. NumPy has no bfloat16, so its bits are stored as u2 when the caller asks for
// it. Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_NPY_H_
#define PHASOR_KERNELS_TENSOR_NPY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

// What the header of a file says.
struct NpyHeader {
  TensorDesc tensor;
  int64_t data_begin = 0;  // offset of the first element in the file
  int64_t data_bytes = 0;
};

// The longest header text. The first kMaxNpyHeaderBytes + 16 bytes of a file hold the whole header.
inline constexpr int64_t kMaxNpyHeaderBytes = 1 << 20;

// Reads the header of a file of `file_bytes` bytes. `start` is the beginning of the file and must
// hold at least the header, or the whole file. `bytes`: elements of one byte (u1, i1) are read as
// FLOAT8_E4M3, whatever they mean. INVALID_ARGUMENT "<path>: ...": not .npy, malformed,
// an element type, order or byte order that is not supported, or less data than the shape needs.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view start, int64_t file_bytes,
                                         bool u2_as_bf16, std::string_view path,
                                         bool bytes = false);

// Formats the bytes that come before the data of a dense tensor.
std::string FormatNpyHeader(const TensorDesc& tensor);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_NPY_H_
