// SPDX-License-Identifier: Apache-2.0
// Headers of .safetensors files (https://github.com/huggingface/safetensors). Reading is strict:
// every key, type, shape and offset is checked. Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_SAFETENSORS_H_
#define PHASOR_KERNELS_TENSOR_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

// One tensor of a file.
struct NamedTensor {
  std::string name;
  TensorDesc tensor;       // a compute dtype, dense; or one of the same size, see other_type
  int64_t data_begin = 0;  // offset in the file
  int64_t data_bytes = 0;
  // A type that is no compute dtype, as the file names it; empty: none.
  std::string other_type = {};
};

// What to do about tensors of other types than F64, F32, F16 and BF16.
enum class OtherTypes : uint8_t { kRefuse, kAccept };

// The longest header. The first kMaxSafetensorsHeaderBytes + 8 bytes of a file hold all of it.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 4 << 20;

// Reads the header of a file of `file_bytes` bytes; returns its tensors in order of data_begin.
// `start` is the beginning of the file and must hold at least the header, or the whole file.
// INVALID_ARGUMENT "<path>: ...": malformed JSON, a key that is unknown or given twice, F8, integer
// or other types unless `other_types` accepts them (never types of less than a byte), a length that
// does not match the shape, or data that overlaps, leaves a gap or does not end with the file.
absl::StatusOr<std::vector<NamedTensor>> ParseSafetensorsHeader(
    std::string_view start, int64_t file_bytes, std::string_view path,
    OtherTypes other_types = OtherTypes::kRefuse);

// Formats the bytes that come before the data of a file that holds only `tensor`.
std::string FormatSafetensorsHeader(std::string_view name, const TensorDesc& tensor);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_SAFETENSORS_H_
