// SPDX-License-Identifier: Apache-2.0
// ResponseSize: adds up the bytes of a response before anything is computed.
#ifndef PHASOR_SERVER_API_RESPONSE_SIZE_H_
#define PHASOR_SERVER_API_RESPONSE_SIZE_H_

#include <cstdint>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/prepared.h"
#include "proto/grpc_status.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// The size of a response. A sum beyond `limit` is an error (RESOURCE_EXHAUSTED), so sums cannot
// overflow. Threads: a plain value.
class ResponseSize {
 public:
  explicit ResponseSize(int64_t limit) : limit_(limit), room_(limit) {}

  // `parts`: as engine::Item::parts.
  absl::Status AddItem(std::string_view path, size_t parts = 1) {
    return Spend(static_cast<int64_t>(parts) * kItemHeaderBytes, path);
  }

  // Adds all that the item's results take.
  absl::Status AddResults(const engine::Item& item, std::string_view path) {
    if (const auto* const move = std::get_if<PreparedMove>(&item.prepared)) {
      PHASOR_RETURN_IF_ERROR(AddEntries(move->specs.size() + move->layers, path));
    }
    for (const engine::Output& output : item.outputs) {
      PHASOR_RETURN_IF_ERROR(AddEntries(item.parts, path));
      if (!output.place.in_answer()) continue;
      PHASOR_RETURN_IF_ERROR(Spend(output.slot.bytes, path));
      element_bytes_ += output.slot.bytes;
    }
    return absl::OkStatus();
  }

  int64_t element_bytes() const { return element_bytes_; }

 private:
  // Upper limits for the bytes of a response besides its elements: an item's status message or run
  // info, and an output's dtype and shape.
  static constexpr int64_t kItemHeaderBytes = kMaxStatusMessageBytes + 256;
  static constexpr int64_t kOutputHeaderBytes = 128;

  // Fingerprints of specs and differences of layers; none is longer than an output's header.
  absl::Status AddEntries(size_t count, std::string_view path) {
    return Spend(static_cast<int64_t>(count) * kOutputHeaderBytes, path);
  }

  absl::Status Spend(int64_t bytes, std::string_view path) {
    if (bytes > room_) {
      return absl::ResourceExhaustedError(StrCat(
          path, ": the response is too large (", limit_ - room_ + bytes,
          " bytes or more); must be at most ", limit_, ", ask for fewer tokens in one call"));
    }
    room_ -= bytes;
    return absl::OkStatus();
  }

  const int64_t limit_;
  int64_t room_;
  int64_t element_bytes_ = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_RESPONSE_SIZE_H_
