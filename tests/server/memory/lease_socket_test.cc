// SPDX-License-Identifier: Apache-2.0
// Tests the lease socket with correct and with misbehaving clients.
#include "server/memory/lease_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/memfd.h"
#include "tests/support/temp_dir.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::Memfd;
using ::testing::HasSubstr;
using ::testing::StartsWith;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

// A connection. Answers are one line; "" at the end.
class Peer {
 public:
  explicit Peer(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = AddressOf(path);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Peer() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  void Send(const std::string& text, const std::vector<int>& fds = {}) const {
    iovec part = {const_cast<char*>(text.data()), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    sendmsg(fd_, &message, MSG_NOSIGNAL);
  }
  std::string Line() const {
    std::string line;
    for (char c = 0; recv(fd_, &c, 1, 0) == 1 && c != '\n';) line.push_back(c);
    return line;
  }
  std::string Ask(const std::string& text, const std::vector<int>& fds = {}) const {
    Send(text, fds);
    return Line();
  }
  // Leases `memfd` and returns the token.
  std::string Lease(const Memfd& memfd) const {
    const std::string answer = Ask("LEASE\n", {memfd.fd()});
    EXPECT_THAT(answer, StartsWith("OK "));
    return answer.substr(3, 32);
  }

 private:
  int fd_;
};

class LeaseSocketTest : public ::testing::Test {
 protected:
  LeaseSocketTest() : path_(dir_.path() + "/lease.sock") {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(path_);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, SOMAXCONN), 0);
    server_ = std::make_unique<LeaseSocket>(listener_, &store_);
  }
  ~LeaseSocketTest() override {
    server_.reset();
    close(listener_);
  }
  void WaitForLeases(int64_t count) {
    EXPECT_TRUE(testing::Eventually([&] { return store_.stats().pieces == count; }));
  }
  static int64_t OpenDescriptors() {
    int64_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++count;
    }
    return count;
  }

  const testing::TempDir dir_;
  const std::string path_;
  LeaseStore store_{{.max_bytes = 1 << 20, .max_pieces = 4}};
  int listener_ = -1;
  std::unique_ptr<LeaseSocket> server_;
};

TEST_F(LeaseSocketTest, MemoryIsLeasedReleasedAndFreedAtTheEnd) {
  Peer peer(path_);
  const Memfd one("one"), two("two");
  const std::string first = peer.Lease(one);
  const std::string second = peer.Lease(two);
  EXPECT_TRUE(store_.Find(first, "x").ok());
  EXPECT_EQ(peer.Ask("RELEASE " + first + "\n"), "OK");
  EXPECT_FALSE(store_.Find(first, "x").ok());
  EXPECT_TRUE(store_.Find(second, "x").ok());
  peer.Close();
  WaitForLeases(0);
}

TEST_F(LeaseSocketTest, TheAnswerNamesTheStore) {
  const Memfd memfd("one");
  EXPECT_THAT(Peer(path_).Ask("LEASE\n", {memfd.fd()}), HasSubstr(" " + store_.instance()));
}

TEST_F(LeaseSocketTest, NobodyReleasesWhatIsAnothers) {
  const Peer owner(path_), thief(path_);
  const Memfd memfd("one");
  const std::string token = owner.Lease(memfd);
  EXPECT_THAT(thief.Ask("RELEASE " + token + "\n"), StartsWith("NOT_FOUND RELEASE"));
  EXPECT_TRUE(store_.Find(token, "x").ok());
}

TEST_F(LeaseSocketTest, ErrorsAreAnsweredAndTheConnectionGoesOn) {
  const Peer peer(path_);
  const Memfd good("good"), unsealed("x", 0), large(int64_t{2} << 20);
  EXPECT_THAT(peer.Ask("LEASE\n"),
              StartsWith("INVALID_ARGUMENT LEASE: comes without a descriptor"));
  EXPECT_THAT(peer.Ask("LEASE\n", {good.fd(), good.fd()}), StartsWith("INVALID_ARGUMENT LEASE"));
  EXPECT_THAT(peer.Ask("LEASE\n", {unsealed.fd()}), StartsWith("INVALID_ARGUMENT memory: may"));
  EXPECT_THAT(peer.Ask("LEASE\n", {large.fd()}), StartsWith("RESOURCE_EXHAUSTED lease: 2097152"));
  EXPECT_THAT(peer.Ask("LEASE please\n", {good.fd()}), StartsWith("INVALID_ARGUMENT request"));
  EXPECT_THAT(peer.Ask("\n"), StartsWith("INVALID_ARGUMENT request"));
  EXPECT_EQ(store_.stats().pieces, 0);
  peer.Lease(good);
}

TEST_F(LeaseSocketTest, RequestsMayArriveInPieces) {
  const Peer peer(path_);
  const Memfd memfd("one");
  peer.Send("LEA");
  EXPECT_THAT(peer.Ask("SE\n", {memfd.fd()}), StartsWith("OK "));
}

TEST_F(LeaseSocketTest, WhoDoesNotKeepToTheLinesIsCutOff) {
  EXPECT_EQ(Peer(path_).Ask(std::string(1000, 'x')), "");
  EXPECT_EQ(Peer(path_).Ask("LEASE\nLEASE\n"), "");
  EXPECT_EQ(Peer(path_).Ask("RELEASE x\nmore"), "");
  const Peer other(path_);  // others are served
  EXPECT_THAT(other.Ask("hello\n"), StartsWith("INVALID_ARGUMENT"));
}

TEST_F(LeaseSocketTest, ManyCyclesLeaveNoDescriptor) {
  const Memfd memfd("one");
  Peer(path_).Lease(memfd);
  WaitForLeases(0);
  const int64_t before = OpenDescriptors();
  {
    const Peer peer(path_);
    for (int i = 0; i < 10000; ++i) {
      const std::string token = peer.Lease(memfd);
      ASSERT_EQ(peer.Ask("RELEASE " + token + "\n"), "OK");
    }
    // More than a message may bring: none of them stays.
    for (int i = 0; i < 100; ++i) {
      EXPECT_THAT(peer.Ask("LEASE\n", std::vector<int>(12, memfd.fd())), StartsWith("INVALID"));
    }
  }
  const Peer last(path_);  // after the one before was closed
  last.Ask("x\n");
  EXPECT_LE(OpenDescriptors(), before + 2);
}

TEST_F(LeaseSocketTest, ManyConnectionsAreBounded) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (size_t i = 0; i < kMaxLeaseConnections; ++i) {
    peers.push_back(std::make_unique<Peer>(path_));
    ASSERT_THAT(peers.back()->Ask("x\n"), StartsWith("INVALID_ARGUMENT"));
  }
  EXPECT_EQ(Peer(path_).Ask("x\n"), "");
  EXPECT_THAT(peers[0]->Ask("x\n"), StartsWith("INVALID_ARGUMENT"));
}

TEST_F(LeaseSocketTest, AClientThatIsKilledLeavesNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Peer peer(path_);
    const Memfd memfd("child");
    peer.Lease(memfd);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char c;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_EQ(store_.stats().pieces, 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  WaitForLeases(0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(LeaseSocketTest, TheEndOfTheServerEndsAllLeases) {
  const Peer peer(path_);
  const Memfd memfd("one");
  peer.Lease(memfd);
  server_.reset();
  EXPECT_EQ(store_.stats().pieces, 0);
  EXPECT_EQ(peer.Line(), "");
}

}  // namespace
}  // namespace phasor::memory
