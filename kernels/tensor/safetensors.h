// SPDX-License-Identifier: Apache-2.0
// Headers of .safetensors files (https://github.com/huggingface/safetensors), read strictly: every
// key, type, shape and offset is checked. Threads: pure functions.
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
  TensorDesc tensor;       // a compute dtype, dense
  int64_t data_begin = 0;  // offset in the file
  int64_t data_bytes = 0;
};

// Longest header. The first kMaxSafetensorsHeaderBytes + 8 bytes of a file hold its header.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 4 << 20;

// Reads the header of a file that begins with `start` (at least the header, or the whole file) and
// is `file_bytes` long. In order of data_begin. INVALID_ARGUMENT "<path>: ...": malformed JSON, a
// key that is unknown or given twice, F8, integer or other types, shape and length that disagree,
// data that overlaps, leaves a gap or does not end with the file.
absl::StatusOr<std::vector<NamedTensor>> ParseSafetensorsHeader(std::string_view start,
                                                                int64_t file_bytes,
                                                                std::string_view path);

// The bytes before the data of a file that holds `tensor` alone.
std::string FormatSafetensorsHeader(std::string_view name, const TensorDesc& tensor);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_SAFETENSORS_H_
