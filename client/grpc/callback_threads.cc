// SPDX-License-Identifier: Apache-2.0
// A channel to nowhere: gRPC's threads stay as long as it, and calls over it fail at once on one of
// them.
#include "client/grpc/callback_threads.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <functional>
#include <new>
#include <utility>

#include "kernels/base/steady_time.h"
#include "proto/grpc_version.h"

namespace phasor::client_internal {
namespace {

// Less than the second after which a thread of gRPC sleeps.
constexpr absl::Duration kBeat = absl::Milliseconds(250);

class Keeper {
 public:
  // Has one of gRPC's threads call `what`.
  void Run(std::function<void()> what) {
    auto* const call = new FailingCall;
    nowhere_.UnaryCall(&call->context, "/", {}, &call->request, &call->response,
                       [call, what = std::move(what)](const grpc::Status&) {
                         delete call;
                         what();
                       });
  }

  // Whoever takes the last beat is awake until the next one, so one thread always is.
  void Beat() {
    auto* const alarm = new grpc::Alarm;
    alarm->Set(WallTimeAfter(kBeat), [this, alarm](bool) {
      Run([this, alarm] {
        delete alarm;
        Beat();
      });
    });
  }

 private:
  struct FailingCall {
    grpc::ClientContext context;
    grpc::Slice nothing;
    grpc::ByteBuffer request{&nothing, 1}, response;
  };

  grpc::GenericStub nowhere_{grpc::CreateCustomChannel("", nullptr, {})};
};

Keeper& TheKeeper() {
  alignas(Keeper) static std::byte room[sizeof(Keeper)];  // never destroyed
  static Keeper* const keeper = [] {
    auto* const made = new (room) Keeper;
    made->Run([] {});
    return made;
  }();
  return *keeper;
}

}  // namespace

void KeepCallbackThreads() {
  [[maybe_unused]] static const bool kept = [] {
    Keeper& keeper = TheKeeper();
    if (PHASOR_GRPC_HAS_CALLBACK_THREADS) keeper.Beat();
    return true;
  }();
}

}  // namespace phasor::client_internal
