// SPDX-License-Identifier: Apache-2.0
// Calls any method by its name, with an empty message.
#ifndef PHASOR_TESTS_SUPPORT_EMPTY_CALL_H_
#define PHASOR_TESTS_SUPPORT_EMPTY_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "absl/synchronization/notification.h"

namespace phasor::testing {

// The status of the call. `method` is "package.Service/Method".
inline grpc::Status CallEmpty(grpc::GenericStub& stub, const std::string& method,
                              grpc::ClientContext* context) {
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  grpc::Status result;
  absl::Notification done;
  stub.UnaryCall(context, "/" + method, {}, &request, &response, [&](grpc::Status status) {
    result = std::move(status);
    done.Notify();
  });
  done.WaitForNotification();
  return result;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_EMPTY_CALL_H_
