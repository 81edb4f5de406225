// SPDX-License-Identifier: Apache-2.0
// A call as the engine sees it: checked items with borrowed payload bytes, and where to answer.
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
#include "server/engine/buffer.h"

namespace phasor::engine {

// Received bytes in pieces, in order. Borrowed from the call that holds them; any alignment.
using Segments = absl::InlinedVector<absl::Span<const std::byte>, 4>;

// Total length.
int64_t SegmentBytes(const Segments& segments);
// Copies the segments one after another to `out`.
void Gather(const Segments& segments, std::byte* out);

// Where an output goes that is not part of the result: memory that outlives the call.
struct Destination {
  std::byte* data = nullptr;  // nullptr: the output is part of the result, in its buffer
  bool strided = false;       // the strides of its input, else dense
  bool on_device = false;     // only the backend may touch it
  bool copied = false;        // part of the result, and Done copies it to where it belongs
  // Set if a computation in place failed in the middle; nullptr: nobody asks.
  std::atomic<bool>* dirty = nullptr;
  // As the caller named it, for the answer.
  std::string region;
  int64_t offset_bytes = 0;

  // Whether the answer carries its bytes.
  bool in_answer() const { return data == nullptr && !copied; }
};

// A tensor that an item reads, and its bytes: exactly as many as the slot says.
struct Input {
  InputSlot slot;
  Segments bytes = {};
  bool changing = false;  // others may write the bytes while they are read
};

// A tensor that an item writes, and where.
struct Output {
  OutputSlot slot;
  Destination place = {};
};

// One checked request of a call. Places overlap nothing but the input of their own output, and that
// only if both begin at the same byte and have the same strides. Whoever gives the item its bytes
// and places checks this.
struct Item {
  Item() = default;
  // Slots without bytes, and outputs that are part of the result.
  explicit Item(Prepared request);
  // An item of a batch that has failed already: it stays in its place.
  explicit Item(absl::Status failed) : status(std::move(failed)) {}

  // The input of that role, or nullptr.
  const Input* Find(Role role, int index = 0) const;
  Input* Find(Role role, int index = 0) {
    return const_cast<Input*>(std::as_const(*this).Find(role, index));
  }

  absl::Status status;  // OK, else nothing below is set
  Prepared prepared;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
};

// One output inside the result's buffer.
struct OutputRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};
struct ItemResult {
  absl::Status status;  // a unary call has one item; its status is the call's
  // One for each output; of no bytes where the output has memory of its own. Empty on failure.
  std::vector<OutputRange> outputs;
  std::string_view backend = {};  // that computed it
};
struct Result {
  std::vector<ItemResult> items;
  BufferRef buffer;  // all outputs; may be shared by the response until it is sent
};

// Whether its bytes take many times as long as others': PARITY arithmetic, element by element.
bool IsSlow(const Item& item);

// Owned by the engine from Submit until Done returned.
class Call {
 public:
  virtual ~Call() = default;
  // Whether the caller is still there. Any thread.
  virtual bool cancelled() const = 0;
  // Who sent it, as a number: calls of different clients that wait take turns. Any thread.
  virtual uint64_t client() const { return 0; }
  // The answer, exactly once. Must not block.
  virtual void Done(absl::StatusOr<Result> result) = 0;
  // The call has its share of the byte budget. Called at most once, before Done. Must not block.
  virtual void Admitted() {}
  // Brings payload that did not arrive with the request and points the items at it: called once,
  // after admission and before any payload is read, on the thread that computes. Copies go to
  // memory of `pool`. An error is the call's answer.
  virtual absl::Status FetchPayload(BufferPool& pool) {
    static_cast<void>(pool);
    return absl::OkStatus();
  }
  // Items' payload is not needed any more from here on: the received bytes may be released.
  // Called at most once, before Done, after every payload was gathered.
  virtual void ReleasePayload() {}

  std::vector<Item> items;
  std::vector<std::shared_ptr<const void>>
      held;                    // memory that the items use, beside the call's own
  bool batch = false;          // messages say "items[3]" instead of "item"
  int64_t cost_bytes = 0;      // request plus response bytes
  int64_t received_bytes = 0;  // the part of the cost that is in memory while the call waits
  int64_t other_bytes = 0;     // of `held` memory that is read and written: work, but no cost
  int64_t work_bytes() const { return cost_bytes + other_bytes; }
  absl::Time deadline = absl::InfiniteFuture();
  bool waits_for_room = false;  // rather than UNAVAILABLE while the byte budget is spent
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_CALL_H_
