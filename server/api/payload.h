// SPDX-License-Identifier: Apache-2.0
// Tensors of phasor.v1 messages: their bytes, in raw entries of the message or in shared memory.
#ifndef PHASOR_SERVER_API_PAYLOAD_H_
#define PHASOR_SERVER_API_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "phasor/v1/move_keys.pb.h"
#include "phasor/v1/tensor.pb.h"
#include "proto/enums.h"
#include "server/engine/call.h"
#include "server/memory/binding.h"

namespace phasor::rpc {

// The raw entries of a message. Hands them out in order. Borrows them.
class RawEntries {
 public:
  explicit RawEntries(absl::Span<const PieceList> entries) : entries_(entries) {}

  // Takes the next entry; there must be one. INVALID_ARGUMENT: it does not have exactly `bytes`
  // bytes. The error names the tensor by `path` and describes it with `what`, which are called only
  // for an error.
  absl::Status Take(int64_t bytes, absl::FunctionRef<std::string()> path,
                    absl::FunctionRef<std::string()> what, PieceList* out) {
    const PieceList& entry = entries_[next_];
    const int64_t got = PieceBytes(entry);
    if (got != bytes) {
      return InvalidAt(path(), "raw[", next_, "] has ", got, " bytes; must have ", bytes, " for ",
                       what());
    }
    ++next_;
    *out = entry;
    return absl::OkStatus();
  }

  size_t next() const { return next_; }
  void SkipTo(size_t next) { next_ = next; }

 private:
  absl::Span<const PieceList> entries_;
  size_t next_ = 0;
};

// The dtype and shape for error messages: "FLOAT32 [8, 1, 128]".
inline std::string Describe(const v1::TensorSpec& tensor) {
  std::string text = absl::StrCat(v1::Dtype_Name(tensor.dtype()).substr(sizeof("DTYPE_") - 1), " [",
                                  absl::StrJoin(tensor.shape(), ", "), "]");
  if (tensor.strides_size() > 0) {
    absl::StrAppend(&text, " with strides [", absl::StrJoin(tensor.strides(), ", "), "]");
  }
  return text;
}

inline bool IsInline(const v1::TensorSpec& tensor) {
  return tensor.source_case() == v1::TensorSpec::SOURCE_NOT_SET;
}

// The place of a tensor or pool. `path` is its path in errors.
template <typename Wire>
memory::SharedTensor PlaceOf(const Wire& wire, const std::string& path) {
  memory::SharedTensor tensor;
  tensor.on_device = wire.has_device();
  tensor.name = tensor.on_device ? wire.device().region() : wire.region().region();
  tensor.offset = tensor.on_device ? wire.device().offset_bytes() : wire.region().offset_bytes();
  const std::string source = absl::StrCat(path, tensor.on_device ? ".device" : ".region");
  tensor.path = path;
  tensor.name_path = source + ".region";
  tensor.offset_path = source + ".offset_bytes";
  return tensor;
}

// A tensor in shared memory, for memory::Binding. Its dtype must have been checked.
inline memory::SharedTensor SharedTensorOf(const v1::TensorSpec& wire, const std::string& path) {
  memory::SharedTensor tensor = PlaceOf(wire, path);
  if (const auto dtype = EnumFromWire<Dtype>(wire.dtype(), path); dtype.ok()) tensor.dtype = *dtype;
  tensor.shape.assign(wire.shape().begin(), wire.shape().end());
  tensor.strides.assign(wire.strides().begin(), wire.strides().end());
  return tensor;
}

// The same for a pool of keys: bytes that may begin anywhere.
inline std::string Describe(const v1::KeyPool&) { return "size_bytes"; }

inline bool IsInline(const v1::KeyPool& pool) {
  return pool.source_case() == v1::KeyPool::SOURCE_NOT_SET;
}

inline memory::SharedTensor SharedTensorOf(const v1::KeyPool& wire, const std::string& path) {
  memory::SharedTensor tensor = PlaceOf(wire, path);
  tensor.dtype = Dtype::kFloat8E4M3;  // one byte
  return tensor;
}

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_PAYLOAD_H_
