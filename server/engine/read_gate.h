// SPDX-License-Identifier: Apache-2.0
// Decides which stream may read its next message. While the byte budget has little room, streams
// wait here before they read. A message that is not yet read stays with its sender; one that was
// read is in memory, whether or not there is room.
#ifndef PHASOR_SERVER_ENGINE_READ_GATE_H_
#define PHASOR_SERVER_ENGINE_READ_GATE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/admission.h"
#include "server/base/mutex.h"

namespace phasor::engine {

// A stream that reads messages. The gate calls it on any thread, without holding a lock.
class Reader {
 public:
  virtual ~Reader() = default;
  // Whether it still waits to read. Must not take a lock.
  virtual bool waits() const = 0;
  // Its turn, called once for each time that it was told to wait. It may read a message; `room` is
  // reserved for that message until it has arrived and reserves its own share. A reader that no
  // longer waits gets an empty permit and may ask again later. Must not block.
  virtual void Read(Permit room) = 0;
};

// The gate that streams wait at. Threads: any.
class ReadGate {
 public:
  // `admission` must outlive this.
  explicit ReadGate(Admission* admission) : admission_(*admission) {}

  // Whether `reader` may read a message of about `bytes` > 0 at once: an eighth of the budget must
  // stay free beside it. If not, its Read is called when there is room, in the order of asking, if
  // it still exists. It must not ask again before that.
  bool MayRead(std::weak_ptr<Reader> reader, int64_t bytes);
  // Calls Read of the readers for which there is room now.
  void Look();
  // Lets all readers read from now on. Those that wait may ask again.
  void Open();

  int64_t waiting();

 private:
  struct Waiting {
    std::weak_ptr<Reader> reader;
    int64_t bytes;
  };

  using Readers = std::vector<std::shared_ptr<Reader>>;

  // Removes the readers that no longer wait, or all if the gate is open. They get no room.
  Readers TakeLeavers();
  // The reader whose turn it is, and its room; nullptr if there is none.
  std::shared_ptr<Reader> Next(Permit* room);

  Admission& admission_;
  Mutex mu_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_READ_GATE_H_
