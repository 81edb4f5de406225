// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a message's tensors are: in its entries, or in shared memory.
#ifndef PHASOR_SERVER_API_PAYLOAD_H_
#define PHASOR_SERVER_API_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "phasor/v1/tensor.pb.h"
#include "server/api/shared_tensors.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Raw entries of the message, handed out in order.
class RawEntries {
 public:
  explicit RawEntries(absl::Span<const engine::Segments> entries) : entries_(entries) {}

  // The next entry, which must have exactly `bytes` bytes for `tensor`, described by `what`.
  absl::Status Take(int64_t bytes, const std::string& path, const std::string& what,
                    engine::Segments* out) {
    const engine::Segments& entry = entries_[next_];
    const int64_t got = engine::SegmentBytes(entry);
    if (got != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": raw[", next_, "] has ", got,
                                                     " bytes, expected ", bytes, " for ", what));
    }
    ++next_;
    *out = entry;
    return absl::OkStatus();
  }

  size_t next() const { return next_; }
  void SkipTo(size_t next) { next_ = next; }

 private:
  absl::Span<const engine::Segments> entries_;
  size_t next_ = 0;
};

// "FLOAT32 [8, 1, 128]".
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

// A tensor of an item on the wire, and what errors call it.
struct WireTensor {
  const v1::TensorSpec* tensor = nullptr;  // nullptr: there is none
  std::string path;
};

// Where the bytes of the tensors of a message are.
struct Payload {
  RawEntries raw;
  SharedTensors shared;

  // Gives `input` its bytes. `raw_path`: what errors of entries call it.
  absl::Status Take(const WireTensor& wire, const std::string& raw_path, engine::Input* input) {
    const int64_t bytes = input->slot.bytes;
    if (IsInline(*wire.tensor)) {
      return raw.Take(bytes, raw_path, Describe(*wire.tensor), &input->bytes);
    }
    PHASOR_ASSIGN_OR_RETURN(const auto span, shared.Input(*wire.tensor, bytes, wire.path));
    input->bytes = {span};
    input->changing = true;
    return absl::OkStatus();
  }
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_PAYLOAD_H_
