// SPDX-License-Identifier: Apache-2.0
// What differs between the versions of gRPC that this code is compiled with, from 1.51 on.
#ifndef PHASOR_PROTO_GRPC_VERSION_H_
#define PHASOR_PROTO_GRPC_VERSION_H_

#include <grpcpp/version_info.h>

#define PHASOR_GRPC_AT_LEAST(major, minor) \
  (GRPC_CPP_VERSION_MAJOR * 1000 + GRPC_CPP_VERSION_MINOR >= (major)*1000 + (minor))

// gRPC writes its log with Abseil, and no longer with a log of its own.
#define PHASOR_GRPC_LOGS_WITH_ABSEIL PHASOR_GRPC_AT_LEAST(1, 66)

// A connection has at most GRPC_ARG_MAX_CONCURRENT_STREAMS calls, even if its peer never
// acknowledges SETTINGS, and streams that it resets leave no memory behind. Later than 1.51; of the
// releases between, none was tested.
#define PHASOR_GRPC_BOUNDS_STREAMS PHASOR_GRPC_AT_LEAST(1, 83)

// Callbacks run on threads that gRPC starts for them and that take turns at the network. Later they
// run on the pool of its EventEngine; of the releases between, none was tested.
#define PHASOR_GRPC_HAS_CALLBACK_THREADS (!PHASOR_GRPC_AT_LEAST(1, 83))

#endif  // PHASOR_PROTO_GRPC_VERSION_H_
