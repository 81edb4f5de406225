// SPDX-License-Identifier: Apache-2.0
// A call of the engine: checked items with borrowed payload bytes, and the functions that answer.
#ifndef PHASOR_SERVER_ENGINE_CALL_H_
#define PHASOR_SERVER_ENGINE_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/request/prepared.h"
#include "kernels/tensor/pieces.h"
#include "server/engine/buffer.h"
#include "server/engine/phases.h"

namespace phasor::engine {

// Memory for an output, if it does not go into the result's buffer. It must outlive the call.
struct Destination {
  std::byte* data = nullptr;  // nullptr: the output is part of the result, in its buffer
  bool strided = false;       // has the strides of its input; otherwise dense
  bool on_device = false;     // only the backend may access it
  bool copied = false;        // part of the result, and Done copies it to its place
  // Set to true if a computation in place failed in the middle. nullptr: not needed.
  std::atomic<bool>* dirty = nullptr;
  // The name of the region as the caller gave it, for the answer.
  std::string region;
  int64_t offset_bytes = 0;

  // Whether the answer carries the output's bytes.
  bool in_answer() const { return data == nullptr && !copied; }
};

// A tensor that an item reads. Once its bytes are set, they are exactly slot.bytes many.
struct Input {
  InputSlot slot;
  PieceList bytes = {};
  bool changing = false;  // others may write the bytes while they are read
};

// A tensor that an item writes, and its place.
struct Output {
  OutputSlot slot;
  Destination place = {};
};

// One checked request of a call. The place of an output must not overlap any other tensor, except
// its own input; then both must begin at the same byte and have the same strides. The code that
// sets bytes and places checks this.
struct Item {
  Item() = default;
  explicit Item(Prepared&& request) : prepared(std::move(request)) { MakeSlots(); }
  // An item of a batch that has failed already. It keeps its index.
  explicit Item(absl::Status failed) : status(std::move(failed)) {}

  // Makes inputs that have no bytes yet, and outputs that are part of the result, as `prepared`
  // asks.
  void MakeSlots();

  // The input in that role; nullptr: there is none.
  const Input* Find(Role role, int index = 0) const;
  Input* Find(Role role, int index = 0) {
    return const_cast<Input*>(std::as_const(*this).Find(role, index));
  }

  // The items of the message, one after another, that this one stands for. Each has an equal share
  // of the positions and of every output, in order.
  size_t parts = 1;
  absl::Status status;  // if not OK, nothing below is set
  Prepared prepared;
  std::vector<Input> inputs;
  absl::InlinedVector<Output, 2> outputs;  // most items have one or two
};

// The bytes of one output in the result's buffer.
struct OutputRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};
struct ItemResult {
  absl::Status status;  // a unary call has one item, whose status is the call's
  // One range per output; without bytes if the output has memory of its own. Empty on failure.
  absl::InlinedVector<OutputRange, 1> outputs;
  std::string_view backend = {};  // the backend that computed the item
};
struct Result {
  absl::InlinedVector<ItemResult, 1> items;
  BufferRef buffer;  // all outputs; the response may share it until it is sent
};

// Rows of encodings that have fewer bytes take as long as rows of so many.
inline constexpr int64_t kNarrowRowBytes = 32;

// Whether a byte of this item takes many times as long as usual: PARITY and COMPARE compute element
// by element, and encodings take a while for each row, however narrow it is.
bool IsSlow(const Item& item);
// How many bytes one of its bytes counts for.
inline constexpr int64_t kSlowFactor = 16;

// So many bytes of memory that messages only name count as one byte of a message when the thread
// that receives may compute: nobody receives, gathers and sends them.
inline constexpr int64_t kHeldShare = 4;

// The interface between the engine and the sender of a call. The engine owns a call from Submit
// until Done has returned. Threads: any may call cancelled() and client().
class Call {
 public:
  virtual ~Call() = default;
  // Whether the caller is gone. Threads: any.
  virtual bool cancelled() const = 0;
  // A number that identifies the client. Waiting calls of different clients take turns. Threads:
  // any.
  virtual uint64_t client() const { return 0; }
  // Takes the answer. Called exactly once. Must not block.
  virtual void Done(absl::StatusOr<Result> result) = 0;
  // The call has its share of the byte budget. Called at most once, before Done. Must not block.
  virtual void Admitted() {}
  // Fetches payload that did not arrive with the request, and points the items at it. Called once,
  // after admission and before any payload is read, on the thread that computes. Copies go to
  // memory of `pool`. An error becomes the call's answer.
  virtual absl::Status FetchPayload(BufferPool& pool) {
    static_cast<void>(pool);
    return absl::OkStatus();
  }
  // The payload of the items is not needed any more, so the received bytes may be freed. Called at
  // most once, before Done, after all payload was read.
  virtual void ReleasePayload() {}

  std::vector<Item> items;
  std::vector<std::shared_ptr<const void>>
      held;                    // memory that the items use, besides the call's own
  bool batch = false;          // errors say "items[3]" instead of "item"
  int64_t cost_bytes = 0;      // bytes of request, response and copies
  int64_t received_bytes = 0;  // the part of the cost that is in memory while the call waits
  int64_t other_bytes = 0;     // of `held` memory, read and written: counts as work, not as cost
  int64_t work_bytes() const { return cost_bytes + other_bytes; }
  // The work, as the limit on calls that run inside Submit counts it.
  int64_t inline_bytes() const { return cost_bytes + other_bytes / kHeldShare; }
  absl::Time deadline = absl::InfiniteFuture();
  Phases phases = {};           // the engine sets `started` to `computed`
  bool waits_for_room = false;  // waits while the byte budget is spent, instead of UNAVAILABLE
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_CALL_H_
