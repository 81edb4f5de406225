// SPDX-License-Identifier: Apache-2.0
// Which stream reads its next message now. While the byte budget has little room, streams wait here
// before they read: a message that nobody has asked for stays with its sender, one that has arrived
// is in memory whether there is room or not.
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

class Reader {
 public:
  virtual ~Reader() = default;
  // Whether it still waits to read. Takes no lock.
  virtual bool waits() const = 0;
  // Its turn, once for each time that it was told to wait: it may read a message, for which `room`
  // is kept free until it is there and takes its own share. If it waits no more, it gets no room;
  // it asks again when it does. Must not block.
  virtual void Read(Permit room) = 0;
};

// Threads: any.
class ReadGate {
 public:
  // `admission` must outlive it.
  explicit ReadGate(Admission* admission) : admission_(*admission) {}

  // Whether `reader` may read a message of about `bytes` > 0 at once: an eighth of the budget is
  // free beside it. Else its Read is called when there is room, in the order of asking, if it still
  // exists then. Not to be asked again before that.
  bool MayRead(std::weak_ptr<Reader> reader, int64_t bytes);
  // Lets those read for whom there is room by now.
  void Look();
  // Lets all read, from now on: those that wait may ask again.
  void Open();

  int64_t waiting();

 private:
  struct Waiting {
    std::weak_ptr<Reader> reader;
    int64_t bytes;
  };

  using Readers = std::vector<std::shared_ptr<Reader>>;

  // Takes out those that do not wait any more, or all once it is open. They get no room.
  Readers TakeLeavers();
  // Who reads next, and the room for it; nullptr: nobody.
  std::shared_ptr<Reader> Next(Permit* room);

  Admission& admission_;
  Mutex mu_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_READ_GATE_H_
