// SPDX-License-Identifier: Apache-2.0
// Writes gRPC's log lines to the server's log, and reads events from them that gRPC reports nowhere
// else.
#ifndef PHASOR_SERVER_GRPC_GRPC_LOG_H_
#define PHASOR_SERVER_GRPC_GRPC_LOG_H_

#include <cstdint>

namespace phasor {

// Begins to forward gRPC's log, for the whole process. May be called again.
void ForwardGrpcLog();

// Makes gRPC log what it knows about handshakes, which it does only at its most verbose level, and
// later releases only in a trace. That is a few lines per connection and none per call.
void WatchTlsHandshakes();

// Number of connections of this process that failed in the TLS handshake: one side rejected a
// certificate, the peer did not speak TLS, or it asked for a name that the certificate does not
// have. gRPC reports this only in its log.
int64_t TlsHandshakesFailed();

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_GRPC_LOG_H_
