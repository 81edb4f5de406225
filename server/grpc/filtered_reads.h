// SPDX-License-Identifier: Apache-2.0
// Shows what gRPC reads from clients to a FrameFilter, before gRPC sees it. gRPC has no interface
// for that (docs/adr/0031-frames-are-filtered-as-grpc-reads-them.md), so this source defines
// recvmsg, close and SSL_read, which gRPC's library finds in the program before those of the
// system.
#ifndef PHASOR_SERVER_GRPC_FILTERED_READS_H_
#define PHASOR_SERVER_GRPC_FILTERED_READS_H_

#include <cstdint>
#include <memory>

#include "server/net/frame_filter.h"

namespace phasor {

// Filters what recvmsg reads from this socket, until it is closed. A client that does wrong is hung
// up on. Threads: any; before the socket is read.
void FilterReads(int fd, std::unique_ptr<FrameFilter> filter);

// Filters what every TLS server of this process reads from now on, each connection with a budget of
// resets of its own, up to the largest `header_block_bytes` of all calls. Threads: any.
void FilterTlsReads(int64_t header_block_bytes);

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_FILTERED_READS_H_
