// SPDX-License-Identifier: Apache-2.0
// Whether a call writes where it reads. Kernels in this process, and servers that map the memory,
// would then give other results than servers that get copies.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_OVERLAP_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_OVERLAP_H_

#include <cstddef>
#include <cstdint>

#include "client/python/native/arrays.h"
#include "client/tensor.h"

namespace phasor::python {

// A tensor of a call. Refers to the view.
struct NamedTensor {
  template <typename View>
  NamedTensor(const View& view, ArgName of)
      : desc(view.desc),
        data(view.data),
        bytes(view.bytes),
        on_gpu(view.device.memory != nullptr),
        name(of) {}

  const TensorDesc& desc;
  const std::byte* data;
  int64_t bytes;
  bool on_gpu;
  ArgName name;
};

// Raises InvalidArgument if an output shares memory with another tensor of its call. Memory of a
// GPU is left to its server.
void CheckApart(const NamedTensor& output, const NamedTensor& other);

// The same for the input of the output, which may also be the same tensor.
void CheckOwnInput(const NamedTensor& output, const NamedTensor& input);

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_OVERLAP_H_
