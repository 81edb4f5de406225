// SPDX-License-Identifier: Apache-2.0
// Tests what callers leave behind when they hang up: their regions go with their connections.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/http2_frames.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Send;

constexpr int kNamesOfACaller = 256;  // --max-regions
constexpr int kCallers = 4;           // together they have all names that there are

class DepartedTest : public ::testing::Test {
 protected:
  DepartedTest() {
    options_.shared_memory = true;
    server_ = testing::StartServer(options_);
  }

  std::string address() const { return server_->listeners()[0]; }

  grpc::Status Register(const std::shared_ptr<grpc::Channel>& channel, const std::string& name) {
    testing::TestContext context;
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(1);
    request.mutable_region()->mutable_posix()->set_key(memory_.key());
    v1::RegisterResponse response;
    return v1::SharedMemoryService::NewStub(channel)->Register(&context, request, &response);
  }
  grpc::Status RegisterForEverybody(const std::shared_ptr<grpc::Channel>& channel,
                                    const std::string& name) {
    testing::TestContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(memory_.key());
    request.set_byte_size(1);
    inference::SystemSharedMemoryRegisterResponse response;
    return inference::GRPCInferenceService::NewStub(channel)->SystemSharedMemoryRegister(
        &context, request, &response);
  }
  bool HasForEverybody(const std::string& name) {
    testing::TestContext context;
    inference::SystemSharedMemoryStatusRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryStatusResponse response;
    return inference::GRPCInferenceService::NewStub(testing::NewChannel(address()))
        ->SystemSharedMemoryStatus(&context, request, &response)
        .ok();
  }

  // A call over a connection by hand, and what comes back until it is answered.
  static std::string Call(const FileDescriptor& peer, const std::string& method,
                          const google::protobuf::MessageLite& request) {
    EXPECT_TRUE(
        Send(peer, std::string(testing::kHello) +
                       testing::CallHeaders(testing::kEndHeaders, 1,
                                            "/phasor.v1.SharedMemoryService/" + method) +
                       testing::MessageData(request.SerializeAsString(), testing::kEndStream)));
    std::string answer;
    testing::CallsSeen seen;
    std::string rest;
    EXPECT_TRUE(Eventually([&] {
      char part[4096];
      const ssize_t n = recv(peer.get(), part, sizeof(part), MSG_DONTWAIT);
      if (n > 0) answer.append(part, static_cast<size_t>(n));
      return answer.find("grpc-status") != std::string::npos;
    }));
    return answer;
  }

  const testing::SharedMemory memory_{"abc"};
  ServerOptions options_ = testing::TestOptions();
  std::unique_ptr<Server> server_;
};

// A socket of 127.0.0.1 with this port, or any for 0.
FileDescriptor SocketAt(uint16_t port, uint16_t* bound) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const linger at_once = {1, 0};  // closing resets, so that the port is free again
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_port = htons(port);
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)), 0);
  socklen_t size = sizeof(here);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
  *bound = ntohs(here.sin_port);
  return fd;
}

TEST_F(DepartedTest, TheNextConnectionFromTheSamePortIsAStranger) {
  uint16_t port = 0;
  v1::RegisterRequest request;
  request.mutable_region()->set_name("secret");
  request.mutable_region()->set_size_bytes(1);
  request.mutable_region()->mutable_posix()->set_key(memory_.key());
  {
    const FileDescriptor first = ConnectTo(address(), SocketAt(0, &port));
    ASSERT_TRUE(first.valid());
    EXPECT_THAT(Call(first, "Register", request), HasSubstr("secret"));
  }
  for (int i = 0; i < 20; ++i) {
    const FileDescriptor next = ConnectTo(address(), SocketAt(port, &port));
    ASSERT_TRUE(next.valid());
    EXPECT_THAT(Call(next, "List", v1::ListRequest()), Not(HasSubstr("secret")));
  }
  EXPECT_TRUE(Register(testing::NewChannel(address()), "secret").ok()) << "the name is free again";
}

TEST_F(DepartedTest, NamesGoWithTheirConnections) {
  std::vector<std::shared_ptr<grpc::Channel>> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(testing::NewChannel(address()));
    for (int i = 0; i < kNamesOfACaller; ++i) {
      ASSERT_TRUE(Register(callers.back(), absl::StrCat(caller, "-", i)).ok());
    }
  }
  const auto other = testing::NewChannel(address());
  EXPECT_EQ(Register(other, "mine").error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  callers.clear();
  EXPECT_TRUE(Eventually([&] { return Register(other, "mine").ok(); }));
}

// As Triton's clients expect, but not at the cost of others.
TEST_F(DepartedTest, NamesForEverybodyStayWhileThereAreOthers) {
  for (int caller = 0; caller < kCallers; ++caller) {
    const auto channel = testing::NewChannel(address());
    for (int i = 0; i < kNamesOfACaller; ++i) {
      ASSERT_TRUE(RegisterForEverybody(channel, absl::StrCat(caller, "-", i)).ok());
    }
  }
  EXPECT_TRUE(HasForEverybody("0-0"));
  EXPECT_TRUE(HasForEverybody("3-255"));
  const auto other = testing::NewChannel(address());
  EXPECT_TRUE(Eventually([&] { return RegisterForEverybody(other, "mine").ok(); }));
  EXPECT_TRUE(HasForEverybody("mine"));
  EXPECT_FALSE(HasForEverybody("0-0"));
}

}  // namespace
}  // namespace phasor
