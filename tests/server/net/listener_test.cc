// SPDX-License-Identifier: Apache-2.0
// Tests the accept loop: limits, counts, and that it survives a lack of descriptors.
#include "server/net/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "server/base/log.h"
#include "server/base/mutex.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_systemd.h"
#include "tests/support/listening_socket.h"
#include "tests/support/socket_client.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using ::testing::ElementsAreArray;
using testing::Eventually;

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() { options_.addresses = {"127.0.0.1:0"}; }

  void Start() {
    auto listener = Listener::Bind(options_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start([this](int, int fd) {
      MutexLock lock(&mu_);
      accepted_.emplace_back(fd);
      changed_.SignalAll();
    });
  }
  std::string address() const { return listener_->addresses()[0]; }

  // The i-th accepted connection, once there is one.
  int Accepted(size_t i) {
    MutexLock lock(&mu_);
    while (accepted_.size() <= i) changed_.Wait(&mu_);
    return accepted_[i].get();
  }
  // Ends the i-th connection as gRPC does.
  void CloseAccepted(size_t i) {
    const int fd = Accepted(i);
    shutdown(fd, SHUT_RDWR);
    MutexLock lock(&mu_);
    accepted_[i].Close();
  }
  void WaitForConnections(int64_t count) {
    while (listener_->stats().connections != count) std::this_thread::yield();
  }

  ListenerOptions options_;
  Mutex mu_;
  CondVar changed_;
  std::vector<FileDescriptor> accepted_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, HandsOnNonBlockingConnections) {
  Start();
  const FileDescriptor client = ConnectTo(address());
  ASSERT_TRUE(client.valid());
  EXPECT_NE(fcntl(Accepted(0), F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(write(client.get(), "x", 1), 1);
  pollfd readable = {Accepted(0), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 30000), 1);
  char byte = 0;
  EXPECT_EQ(read(Accepted(0), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(ListenerTest, ForgetsConnectionsThatTheOwnerShutDown) {
  Start();
  const FileDescriptor client = ConnectTo(address());
  Accepted(0);
  WaitForConnections(1);
  CloseAccepted(0);
  WaitForConnections(0);
  EXPECT_TRUE(WaitForClose(client.get()));
}

TEST_F(ListenerTest, ForgetsConnectionsThatTheClientReset) {
  Start();
  FileDescriptor client = ConnectTo(address());
  Accepted(0);
  const linger reset = {1, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client.Close();
  WaitForConnections(0);
}

// gRPC may hold a socket for a while after it was shut down.
TEST_F(ListenerTest, EventsOfAClosedConnectionAreNotThoseOfTheNext) {
  Start();
  FileDescriptor holes[] = {FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)),
                            FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC))};
  FileDescriptor first = ConnectTo(address());
  shutdown(Accepted(0), SHUT_RDWR);
  WaitForConnections(0);
  for (FileDescriptor& hole : holes) hole.Close();  // for both ends of the next connection
  const FileDescriptor second = ConnectTo(address());
  Accepted(1);  // watched under the number that the first one had
  WaitForConnections(1);
  first.Close();
  shutdown(Accepted(0), SHUT_RDWR);
  const FileDescriptor third = ConnectTo(address());
  Accepted(2);  // after those events
  EXPECT_EQ(listener_->stats().connections, 2);
}

TEST_F(ListenerTest, RefusesConnectionsOverTheCapUntilOneCloses) {
  options_.max_connections = 2;
  Start();
  const FileDescriptor first = ConnectTo(address());
  const FileDescriptor second = ConnectTo(address());
  Accepted(1);
  const FileDescriptor third = ConnectTo(address());
  EXPECT_TRUE(WaitForClose(third.get()));
  EXPECT_EQ(listener_->stats().refused, 1);
  CloseAccepted(0);
  WaitForConnections(1);
  const FileDescriptor fourth = ConnectTo(address());
  Accepted(2);
  EXPECT_EQ(listener_->stats().refused, 1);
}

TEST_F(ListenerTest, NewCapsHoldForTheNextConnection) {
  options_.max_connections = 1;
  Start();
  const FileDescriptor first = ConnectTo(address());
  Accepted(0);
  listener_->SetCaps(2, 2);
  const FileDescriptor second = ConnectTo(address());
  Accepted(1);
  listener_->SetCaps(100, 1);
  const FileDescriptor third = ConnectTo(address());
  EXPECT_TRUE(WaitForClose(third.get()));
  EXPECT_EQ(listener_->stats().refused, 1);
  EXPECT_EQ(listener_->stats().connections, 2);
}

TEST_F(ListenerTest, CapsEachPeerAlone) {
  const std::string path =
      ::testing::TempDir() + "/phasor_listener_test_" + std::to_string(getpid()) + ".sock";
  options_.addresses.push_back("unix:" + path);
  options_.max_connections_per_peer = 1;
  Start();
  const FileDescriptor tcp = ConnectTo(address());
  Accepted(0);
  const FileDescriptor again = ConnectTo(address());
  EXPECT_TRUE(WaitForClose(again.get()));
  const FileDescriptor local = ConnectTo("unix:" + path);
  Accepted(1);
  EXPECT_EQ(listener_->stats().refused, 1);
}

TEST_F(ListenerTest, ClosesTheOldestForOneTooMany) {
  options_.max_connections = options_.max_connections_per_peer = 2;
  options_.closes_oldest = true;
  Start();
  std::vector<FileDescriptor> clients;
  for (size_t i = 0; i < 6; ++i) {
    clients.push_back(ConnectTo(address()));
    ASSERT_TRUE(Eventually([&] { return listener_->stats().accepted > static_cast<int64_t>(i); }));
    Accepted(i);
    if (i >= 2) {
      EXPECT_TRUE(WaitForClose(clients[i - 2].get())) << i;
    }
    EXPECT_EQ(listener_->stats().connections, std::min<int64_t>(i + 1, 2));
  }
  EXPECT_EQ(listener_->stats().refused, 0);
  char byte = 'x';
  ASSERT_EQ(write(Accepted(4), &byte, 1), 1);
  EXPECT_EQ(read(clients[4].get(), &byte, 1), 1);
}

TEST_F(ListenerTest, StopClosesTheDoorAndIsIdempotent) {
  Start();
  const std::string bound = address();
  listener_->Stop();
  listener_->Stop();
  EXPECT_FALSE(ConnectTo(bound).valid());
}

TEST_F(ListenerTest, HangUpClosesConnectionsAfterWhatWasWritten) {
  Start();
  const FileDescriptor client = ConnectTo(address());
  ASSERT_EQ(write(Accepted(0), "last", 4), 4);
  listener_->Stop();
  EXPECT_TRUE(listener_->HangUp(absl::InfiniteDuration()));
  char last[4];
  EXPECT_EQ(read(client.get(), last, 4), 4);
  EXPECT_TRUE(WaitForClose(client.get()));
  EXPECT_EQ(read(Accepted(0), last, 4), 0);
}

// gRPC closes a connection with bytes of the client unread, which resets it.
TEST_F(ListenerTest, HangUpWaitsUntilWhatWasWrittenHasArrived) {
  Start();
  const FileDescriptor client = ConnectTo(address(), SocketThatHoldsLittle());
  const int64_t written = WriteUntilFull(Accepted(0));
  ASSERT_EQ(write(client.get(), "unread", 6), 6);
  listener_->Stop();
  std::atomic<bool> hanging_up = false;
  std::thread owner([this, &hanging_up] {
    hanging_up = true;
    EXPECT_TRUE(listener_->HangUp(absl::InfiniteDuration()));
    CloseAccepted(0);
  });
  while (!hanging_up) std::this_thread::yield();
  EXPECT_EQ(ReadBytes(client.get(), written), written);
  owner.join();
}

TEST_F(ListenerTest, HangUpDoesNotWaitForWhatIsWrittenLater) {
  Start();
  const FileDescriptor client = ConnectTo(address(), SocketThatHoldsLittle());
  WriteUntilFull(Accepted(0));
  listener_->Stop();
  std::atomic<bool> hung_up = false;
  std::thread owner([this, &hung_up] {
    EXPECT_TRUE(listener_->HangUp(absl::InfiniteDuration()));
    hung_up = true;
  });
  // The queue is never empty before the connection is shut down.
  while (!hung_up && ReadBytes(client.get(), 1024) == 1024) WriteUntilFull(Accepted(0));
  owner.join();
}

TEST_F(ListenerTest, HangUpGivesUpOnAPeerThatDoesNotRead) {
  Start();
  const FileDescriptor client = ConnectTo(address(), SocketThatHoldsLittle());
  WriteUntilFull(Accepted(0));
  listener_->Stop();
  EXPECT_FALSE(listener_->HangUp(absl::Milliseconds(1)));
  CloseAccepted(0);
}

TEST_F(ListenerTest, ConnectionsBeforeStartWait) {
  auto listener = Listener::Bind(options_);
  ASSERT_TRUE(listener.ok());
  const FileDescriptor client = ConnectTo((*listener)->addresses()[0]);
  EXPECT_TRUE(client.valid());
  listener_ = *std::move(listener);
  listener_->Start([this](int, int fd) {
    MutexLock lock(&mu_);
    accepted_.emplace_back(fd);
    changed_.SignalAll();
  });
  Accepted(0);
}

// Lowers the limit of file descriptors while it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &old_);
    const rlimit low = {limit, old_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    SetLogLevel(LogLevel::kOff);
  }
  ~DescriptorLimit() {
    setrlimit(RLIMIT_NOFILE, &old_);
    SetLogLevel(LogLevel::kInfo);
  }

 private:
  rlimit old_;
};

TEST_F(ListenerTest, WithoutDescriptorsClientsAreTurnedAwayAndServedAgainLater) {
  Start();
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    std::vector<FileDescriptor> fill;
    const DescriptorLimit limit(200);
    for (FileDescriptor fd(dup(0)); fd.valid(); fd = FileDescriptor(dup(0))) {
      fill.push_back(std::move(fd));
    }
    const FileDescriptor client = ConnectTo(address(), std::move(socket));
    EXPECT_TRUE(WaitForClose(client.get()));
    EXPECT_EQ(listener_->stats().starved, 1);
  }
  const FileDescriptor client = ConnectTo(address());
  Accepted(0);
}

TEST_F(ListenerTest, WithoutEvenTheSpareDescriptorClientsWaitAndAreServedLater) {
  Start();
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const DescriptorLimit limit(0);
    client = ConnectTo(address(), std::move(client));
    while (listener_->stats().starved == 0) std::this_thread::yield();
  }
  Accepted(0);
}

// The life of a service: each process ends before the next one starts.
class KeptListenerTest : public ListenerTest {
 protected:
  KeptListenerTest() {
    options_.addresses.push_back("unix:" + folder_.path() + "/s");
    options_.notify_socket = systemd_.path();
    Start();
    options_.addresses[0] = address();
    End();
  }
  void End() {
    ASSERT_TRUE(Eventually([&] { return systemd_.messages().size() == 2; }));
    listener_.reset();
    options_.passed.clear();
    for (FileDescriptor& fd : systemd_.Passed()) options_.passed.push_back(fd.Release());
  }

  testing::TempDir folder_;
  testing::FakeSystemd systemd_{folder_.path() + "/notify"};
};

TEST_F(KeptListenerTest, WhoConnectsBetweenTwoProcessesWaitsForTheNext) {
  ASSERT_EQ(options_.passed.size(), 2u);
  std::vector<FileDescriptor> clients;
  for (const std::string& address : options_.addresses) clients.push_back(ConnectTo(address));
  Start();
  EXPECT_THAT(listener_->addresses(), ElementsAreArray(options_.addresses));
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_TRUE(clients[i].valid()) << options_.addresses[i];
    EXPECT_GE(Accepted(i), 0);
  }
  EXPECT_TRUE(Eventually([&] { return systemd_.Passed().size() == 2; })) << "for the one after it";
}

TEST_F(KeptListenerTest, AKeptSocketIsNotInTheWayOfNewAddresses) {
  const std::string port = options_.addresses[0].substr(options_.addresses[0].rfind(':'));
  options_.addresses = {"0.0.0.0" + port};
  Start();
  EXPECT_THAT(listener_->addresses(), ElementsAreArray(options_.addresses));
  EXPECT_TRUE(ConnectTo("127.0.0.1" + port).valid());
  EXPECT_GE(Accepted(0), 0);
}

TEST_F(KeptListenerTest, AddressesThatWereLeftOutRefuse) {
  const std::string gone = options_.addresses[0];
  options_.addresses = {options_.addresses[1]};
  Start();
  EXPECT_TRUE(Eventually([&] { return systemd_.Passed().size() == 1; }));
  EXPECT_FALSE(ConnectTo(gone).valid());
}

TEST_F(ListenerTest, BadAddressIsRefused) {
  options_.addresses = {"127.0.0.1:0", "nowhere"};
  EXPECT_EQ(Listener::Bind(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ListenerTest, AcceptsFromStartToStop) {
  auto listener = Listener::Bind(options_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_FALSE((*listener)->accepting());
  (*listener)->Start([](int, int fd) { FileDescriptor closes(fd); });
  EXPECT_TRUE((*listener)->accepting());
  (*listener)->Stop();
  EXPECT_FALSE((*listener)->accepting());
}

// Both sockets must listen.
TEST_F(ListenerTest, ASocketThatNoLongerListensIsNoticedAndLeavesTheOthersAlone) {
  SetLogLevel(LogLevel::kOff);
  options_.addresses = {"127.0.0.1:0", "127.0.0.1:0"};
  Start();
  ASSERT_TRUE(listener_->accepting());
  ASSERT_TRUE(testing::BreakListener(listener_->addresses()[0]));
  EXPECT_FALSE(listener_->accepting());
  EXPECT_FALSE(ConnectTo(listener_->addresses()[0]).valid());
  const FileDescriptor client = ConnectTo(listener_->addresses()[1]);
  EXPECT_GE(Accepted(0), 0);
  SetLogLevel(LogLevel::kInfo);
}

}  // namespace
}  // namespace phasor
