// SPDX-License-Identifier: Apache-2.0
// unknown_calls ADDRESS COUNT: calls COUNT methods that a server does not have, all with different
// names. Exit status 1 unless every answer is UNIMPLEMENTED.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

#include "absl/synchronization/notification.h"
#include "tests/support/running_server.h"

namespace {

struct Call {
  grpc::ClientContext context;
  grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1};
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
};

constexpr size_t kAtATime = 64;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int count = std::atoi(argv[2]);
  grpc::GenericStub stub(phasor::testing::NewChannel(argv[1]));
  std::deque<Call> calls;
  int unimplemented = 0;
  for (int i = 0; i < count || !calls.empty(); ++i) {
    if (i < count) {
      Call& call = calls.emplace_back();
      stub.UnaryCall(&call.context, "/no.such.Service/Method" + std::to_string(i), {},
                     &call.request, &call.response, [&call](grpc::Status status) {
                       call.status = std::move(status);
                       call.done.Notify();
                     });
    }
    if (i < count && calls.size() < kAtATime) continue;
    calls.front().done.WaitForNotification();
    if (calls.front().status.error_code() == grpc::StatusCode::UNIMPLEMENTED) ++unimplemented;
    calls.pop_front();
  }
  std::printf("%d of %d calls UNIMPLEMENTED\n", unimplemented, count);
  return unimplemented == count ? EXIT_SUCCESS : EXIT_FAILURE;
}
