// SPDX-License-Identifier: Apache-2.0
// Memory for one message and the messages inside it, most often on the stack. A small message takes
// less time to read or write than its parts to allocate and free.
#ifndef PHASOR_SERVER_API_MESSAGE_ROOM_H_
#define PHASOR_SERVER_API_MESSAGE_ROOM_H_

#include <google/protobuf/arena.h>
#include <google/protobuf/stubs/common.h>

namespace phasor::rpc {

// Owns the messages that it makes. Threads: one.
class MessageRoom {
 public:
  template <typename Message>
  Message& Make() {
#if GOOGLE_PROTOBUF_VERSION < 5026000  // there Create makes the message outside the arena
    return *google::protobuf::Arena::CreateMessage<Message>(&arena_);
#else
    return *google::protobuf::Arena::Create<Message>(&arena_);
#endif
  }

 private:
  alignas(8) char first_[2048];
  google::protobuf::Arena arena_{first_, sizeof(first_)};
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_MESSAGE_ROOM_H_
