// SPDX-License-Identifier: Apache-2.0
// Compares the memory of tensors.
#include "client/python/native/overlap.h"

#include "client/python/native/helpers.h"
#include "kernels/base/text.h"
#include "kernels/tensor/span.h"

namespace phasor::python {
namespace {

ByteSpan ToSpan(const NamedTensor& tensor) {
  return SpanOf(tensor.desc.dtype, tensor.desc.shape, tensor.desc.strides,
                reinterpret_cast<int64_t>(tensor.data), tensor.bytes);
}

}  // namespace

void CheckApart(const NamedTensor& output, const NamedTensor& other) {
  // Most tensors are far apart.
  if (output.data + output.bytes <= other.data || other.data + other.bytes <= output.data) return;
  if (output.on_gpu || other.on_gpu || Apart(ToSpan(output), ToSpan(other))) return;
  RaiseInvalid(output.name.Text(),
               StrCat("overlaps ", other.name.Text(),
                      "; an output must overlap nothing, or be exactly its own input"));
}

void CheckOwnInput(const NamedTensor& output, const NamedTensor& input) {
  if (output.data != input.data || output.desc != input.desc) CheckApart(output, input);
}

}  // namespace phasor::python
