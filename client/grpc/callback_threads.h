// SPDX-License-Identifier: Apache-2.0
// The threads on which gRPC runs callbacks. They belong to the whole process.
#ifndef PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_
#define PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_

namespace phasor::client_internal {

// Keeps them until the process ends. To be called before the first callback. gRPC ends them with
// the last channel that used them, and waits for them. If a call on such a thread holds the last
// reference to its channel, the thread would wait for itself and continue with freed memory.
//
// Also keeps one of them awake. By itself, each sleeps for 100 ms after a second without work, and
// answers wait if all of them sleep. Nothing of that is done from gRPC 1.83 on.
//
// A process whose callers all wait has no such threads. They would receive answers that callers
// wait for, and then have to wake them.
void KeepCallbackThreads();

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_
