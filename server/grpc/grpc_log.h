// SPDX-License-Identifier: Apache-2.0
// gRPC's own log lines as ours, and what only they tell.
#ifndef PHASOR_SERVER_GRPC_GRPC_LOG_H_
#define PHASOR_SERVER_GRPC_GRPC_LOG_H_

#include <cstdint>

namespace phasor {

// From now on, for the whole process. Idempotent.
void ForwardGrpcLog();

// Has gRPC say what it knows of handshakes: it does only when it says all. Few lines for each
// connection, none for calls.
void WatchTlsHandshakes();

// Connections of this process that have ended in the handshake of TLS: with a
// certificate that is not accepted on either side, or without TLS; and those that asked for a name
// that the certificate has not. gRPC tells it nowhere else.
int64_t TlsHandshakesFailed();

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_GRPC_LOG_H_
