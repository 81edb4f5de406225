// SPDX-License-Identifier: Apache-2.0
// The threads on which gRPC runs callbacks. They belong to the whole process.
#ifndef PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_
#define PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_

namespace phasor::client_internal {

// Keeps them until the process ends. gRPC ends them with the last channel that used them, and waits
// for them. If a call on such a thread holds the last reference to its channel, the thread would
// wait for itself and continue with freed memory.
void KeepCallbackThreads();

// From now on also keeps one of them awake. By itself, each sleeps for 100 ms after a second
// without work, and answers wait if all of them sleep. Does nothing from gRPC 1.83 on.
void KeepACallbackThreadAwake();

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_CALLBACK_THREADS_H_
