// SPDX-License-Identifier: Apache-2.0
// Keeps protobuf's log off standard error.
#ifndef PHASOR_PROTO_PROTOBUF_LOG_H_
#define PHASOR_PROTO_PROTOBUF_LOG_H_

namespace phasor {

// Stops protobuf from logging to standard error, for the whole process. Otherwise it does so
// whenever a caller sends text that is not UTF-8. Protobuf 22 and later log with Abseil, so there
// the rest of Abseil's log is kept off standard error too, except what ends the process. Threads:
// any; may be called again.
void SilenceProtobufLog();

}  // namespace phasor

#endif  // PHASOR_PROTO_PROTOBUF_LOG_H_
