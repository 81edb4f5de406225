// SPDX-License-Identifier: Apache-2.0
// Later: a function that runs after what gRPC has received already.
#ifndef PHASOR_SERVER_GRPC_LATER_H_
#define PHASOR_SERVER_GRPC_LATER_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <utility>

namespace phasor::rpc {

// Runs a function by way of an operation of gRPC that does nothing. gRPC runs reactions in order,
// so the function follows those that are due on the thread that calls Start.
// Threads: Start, then the function, then Start again.
class Later : private grpc_completion_queue_functor {
 public:
  explicit Later(std::function<void()> run) : run_(std::move(run)) {
    functor_run = [](grpc_completion_queue_functor* self, int) {
      static_cast<Later*>(self)->run_();
    };
    inlineable = 0;
  }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  // Runs the function soon, on one of gRPC's threads and never inside this function. The call of
  // `context` must not end before, nor this be destroyed.
  void Start(grpc::CallbackServerContext* context) {
    grpc_call* const call = context->c_call();
    grpc_call_ref(call);  // the function may end the call meanwhile
    grpc_call_start_batch(call, nullptr, 0, static_cast<grpc_completion_queue_functor*>(this),
                          nullptr);
    grpc_call_unref(call);
  }

 private:
  const std::function<void()> run_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_LATER_H_
