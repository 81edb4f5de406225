// SPDX-License-Identifier: Apache-2.0
// Whether what was written to a socket has arrived.
#ifndef PHASOR_SERVER_NET_DELIVERY_H_
#define PHASOR_SERVER_NET_DELIVERY_H_

#include <cstdint>

namespace phasor {

// All bytes that were written to one socket before a moment. A TCP connection that is closed while
// bytes from its client lie unread drops those that have not arrived. Threads: one at a time.
class Delivery {
 public:
  // Of what was written to `fd` until now. The descriptor must stay open.
  explicit Delivery(int fd);

  // Whether the system on the other side has acknowledged the bytes, or never will, because the
  // connection is broken. True for Unix sockets, where to write is to deliver.
  bool done() const;

 private:
  int fd_;
  uint64_t end_ = 0;  // as acknowledged bytes since the connection began
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_DELIVERY_H_
