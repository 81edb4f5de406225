// SPDX-License-Identifier: Apache-2.0
// A call of grpc.reflection, whose messages have no public header.
#ifndef PHASOR_TESTS_SUPPORT_REFLECTION_CALL_H_
#define PHASOR_TESTS_SUPPORT_REFLECTION_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/running_server.h"

namespace phasor::testing {

// Asks for the list of services. The messages of the stream are bytes here: field 7 is that
// question.
class ReflectionCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ReflectionCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    stub_.PrepareBidiStreamingCall(
        &context_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {}, this);
    const grpc::Slice slice(std::string("\x3a\x01*"));
    request_ = grpc::ByteBuffer(&slice, 1);
    StartWriteLast(&request_, {});
    StartRead(&response_);
    StartCall();
  }
  // How the call ended.
  const grpc::Status& Status() {
    done_.WaitForNotification();
    return status_;
  }
  // The answer's bytes, with the names of all services in them; empty on failure.
  std::string Services() {
    done_.WaitForNotification();
    std::vector<grpc::Slice> slices;
    (void)response_.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes;
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }

 private:
  grpc::GenericStub stub_;
  TestContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  absl::Notification done_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_REFLECTION_CALL_H_
