// SPDX-License-Identifier: Apache-2.0
// AnswerQueue: the answers that a stream has not sent yet, and when the first of them is written.
#ifndef PHASOR_SERVER_API_ANSWER_QUEUE_H_
#define PHASOR_SERVER_API_ANSWER_QUEUE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "server/base/admission.h"

namespace phasor::rpc {

// Small messages of one read from the socket come one after another. Each answer that is written
// alone costs a system call. So a small one is held back until the messages that have arrived are
// taken too, if messages come as close together, or did before. Their answers then leave together.
// Threads: one at a time.
class AnswerQueue {
 public:
  struct Answer {
    grpc::ByteBuffer message;
    int64_t cost_bytes = 0;
    Permit quota_permit;       // kept until the answer has been sent
    bool may_be_held = false;  // the thread that made it takes the messages that have arrived
  };
  // What to do with the first answer. Until that is done, Next returns kNothing.
  enum class Step { kNothing, kWrite, kHold };

  const grpc::ByteBuffer& front() const { return answers_.front().message; }
  // Whether gRPC may keep the first answer until the next is written. Never the stream's first: the
  // initial metadata goes with it, and gRPC says that it is written only when both are sent.
  bool CanWaitForNext() const { return more() && wrote_; }

  // A message has come. `alone`: no other is unanswered.
  void NoteMessage(bool alone) {
    if (alone) overlapped_before_ = std::exchange(overlapped_, false);
    if (!alone) overlapped_ = true;
  }

  void Push(Answer answer) {
    // A system call is little beside a larger answer.
    answer.may_be_held = answer.may_be_held && answer.message.Length() <= kSmallAnswerBytes;
    answers_.push_back(std::move(answer));
  }

  Step Next() {
    if (busy_ || answers_.empty()) return Step::kNothing;
    busy_ = true;
    const bool close = overlapped_ || overlapped_before_;
    return close && answers_.front().may_be_held && !more() ? Step::kHold : Step::kWrite;
  }

  // The messages that had arrived are taken: the first answer is no longer held.
  void EndHold() {
    busy_ = false;
    answers_.front().may_be_held = false;
  }

  // The first answer was written: removes it and returns its cost.
  int64_t EndWrite() {
    busy_ = false;
    wrote_ = true;
    const int64_t cost_bytes = answers_.front().cost_bytes;
    answers_.pop_front();
    return cost_bytes;
  }

  // Whether an answer can be dropped: it is neither being written nor held.
  bool CanDrop() const { return answers_.size() > (busy_ ? 1 : 0); }
  // Removes the last answer and returns its cost.
  int64_t Drop() {
    const int64_t cost_bytes = answers_.back().cost_bytes;
    answers_.pop_back();
    return cost_bytes;
  }

 private:
  static constexpr size_t kSmallAnswerBytes = 4096;

  // More answers follow the first.
  bool more() const { return answers_.size() > 1; }

  std::deque<Answer> answers_;
  bool busy_ = false;   // the first one is being written or held
  bool wrote_ = false;  // an answer was written
  // Messages came while others were unanswered: since one last came alone, and before that.
  bool overlapped_ = false;
  bool overlapped_before_ = false;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_ANSWER_QUEUE_H_
