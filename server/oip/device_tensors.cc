// SPDX-License-Identifier: Apache-2.0
// See device_tensors.h.
#include "server/oip/device_tensors.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::oip {
namespace {

// A tensor that the backend touches on the device.
struct Touched {
  std::string path;
  const std::byte* begin;
  int64_t bytes;
  bool output;
  size_t pair;  // an input and the result that may take its place have the same
};

// Biases are computed on the host.
bool IsDirect(const engine::Item& item) {
  return !std::holds_alternative<PreparedBias>(item.prepared);
}

// Whether `output` is exactly where its input is.
bool IsInPlace(const Touched& output, const Touched& input) {
  return !input.output && input.pair == output.pair && input.begin == output.begin &&
         input.bytes == output.bytes;
}

absl::Status CheckApart(const std::vector<Touched>& tensors) {
  for (const Touched& output : tensors) {
    if (!output.output) continue;
    for (const Touched& other : tensors) {
      const bool apart = &other == &output || other.begin + other.bytes <= output.begin ||
                         output.begin + output.bytes <= other.begin;
      if (apart || IsInPlace(output, other)) continue;
      return Invalid(output.path, ": overlaps ", other.path,
                     " on the device, must overlap nothing, or be exactly its own input");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UseDeviceMemory(PreparedInfer* prepared) {
  std::vector<Touched> touched;
  if (!IsDirect(prepared->item)) return absl::OkStatus();
  for (InputTensor& input : prepared->inputs) {
    engine::Input& slot = *prepared->item.Find(input.role, input.index);
    if (input.range.device == nullptr || input.bytes == 0 || slot.slot.output < 0) continue;
    PHASOR_ASSIGN_OR_RETURN(
        const std::byte* const at,
        input.range.device->At(input.range.offset, input.bytes, /*write=*/false, input.path));
    slot.bytes = {{at, static_cast<size_t>(input.bytes)}};
    input.direct = true;
    prepared->region_bytes -= input.bytes;
    prepared->direct_bytes += input.bytes;
    touched.push_back({input.path, at, input.bytes, false, static_cast<size_t>(slot.slot.output)});
  }
  std::vector<size_t> direct;  // results that the engine does not return
  for (OutputTensor& output : prepared->outputs) {
    if (output.range.device == nullptr || output.bytes == 0) continue;
    engine::Destination* const destination = &prepared->item.outputs[output.index].place;
    memory::DeviceRegion& region = *output.range.device;
    PHASOR_ASSIGN_OR_RETURN(destination->data, region.At(output.range.offset, output.bytes,
                                                         /*write=*/true, output.path));
    destination->on_device = true;
    destination->dirty = region.dirty_flag();
    output.direct = true;
    prepared->output_bytes -= output.bytes;
    prepared->direct_bytes += output.bytes;
    direct.push_back(output.index);
    touched.push_back({output.path, destination->data, output.bytes, true, output.index});
    for (const Touched& other : touched) {
      prepared->in_place = prepared->in_place || IsInPlace(touched.back(), other);
    }
  }
  for (OutputTensor& output : prepared->outputs) {
    output.index -= static_cast<size_t>(std::count_if(
        direct.begin(), direct.end(), [&](size_t index) { return index < output.index; }));
  }
  return CheckApart(touched);
}

}  // namespace phasor::oip
