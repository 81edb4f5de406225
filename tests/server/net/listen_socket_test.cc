// SPDX-License-Identifier: Apache-2.0
// Tests listening sockets on loopback and on files.
#include "server/net/listen_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ListenAddress Tcp(const std::string& host, int port) { return {"", host, port}; }

class UnixSocketTest : public ::testing::Test {
 protected:
  UnixSocketTest() {
    std::string directory = ::testing::TempDir() + "/phasorXXXXXX";
    path_ = std::string(mkdtemp(directory.data())) + "/s";
    address_.unix_path = path_;
  }
  bool Exists() const {
    struct stat status;
    return lstat(path_.c_str(), &status) == 0;
  }

  std::string path_;
  ListenAddress address_;
};

TEST(ListenTest, PortZeroBecomesARealPortThatAcceptsConnections) {
  const auto sockets = Listen(Tcp("127.0.0.1", 0));
  ASSERT_TRUE(sockets.ok());
  ASSERT_EQ(sockets->size(), 1u);
  EXPECT_THAT((*sockets)[0].address(), StartsWith("127.0.0.1:"));
  EXPECT_NE((*sockets)[0].address(), "127.0.0.1:0");
  EXPECT_TRUE(ConnectTo((*sockets)[0].address()).valid());
}

TEST(ListenTest, PortInUseIsUnavailableAndNamed) {
  const auto first = Listen(Tcp("127.0.0.1", 0));
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)[0].address();
  const auto second = Listen(Tcp("127.0.0.1", std::stoi(address.substr(10))));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(address));
}

TEST(ListenTest, APortThatOnlyRootMayHaveIsNamedAsSuch) {
  int first_free = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free;
  if (first_free < 2) GTEST_SKIP() << "here everybody may have every port";
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status status = Listen(Tcp("127.0.0.1", 1)).status();
  ASSERT_EQ(seteuid(user), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::EndsWith("; use a port from 1024 on, or give the server "
                                  "CAP_NET_BIND_SERVICE"));
}

TEST(ListenTest, AllAddressesOfANameShareThePort) {
  const auto sockets = Listen(Tcp("localhost", 0));
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  const std::string first = (*sockets)[0].address();
  for (const ListenSocket& socket : *sockets) {
    EXPECT_EQ(socket.address().substr(socket.address().rfind(':')), first.substr(first.rfind(':')));
  }
}

FileDescriptor DuplicateOf(const ListenSocket& socket) {
  return FileDescriptor(fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0));
}

TEST(ListenTest, APassedSocketOfTheAddressIsTakenWithWhatWaitsThere) {
  auto before = Listen(std::vector<std::string>{"127.0.0.1:0", "127.0.0.1:0"});
  ASSERT_TRUE(before.ok());
  const std::string address = (*before)[0].address();
  std::vector<FileDescriptor> passed;
  passed.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));  // what is no socket stays
  passed.push_back(DuplicateOf((*before)[1]));
  passed.push_back(DuplicateOf((*before)[0]));
  const int fd = passed[2].get();
  before->clear();  // the process has ended
  const FileDescriptor client = ConnectTo(address);
  ASSERT_TRUE(client.valid());

  const auto after = Listen(std::vector<std::string>{address}, {}, &passed);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ((*after)[0].fd(), fd);
  EXPECT_EQ((*after)[0].address(), address);
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_TRUE(FileDescriptor(accept((*after)[0].fd(), nullptr, nullptr)).valid());
  EXPECT_TRUE(passed[0].valid() && passed[1].valid());
}

TEST(ListenTest, UnknownHostIsUnavailable) {
  EXPECT_EQ(Listen(Tcp("256.1.1.1", 0)).status().code(), absl::StatusCode::kUnavailable);
}

TEST(PeerKeyTest, IsTheAddressOfATcpPeer) {
  const auto sockets = Listen(Tcp("127.0.0.1", 0));
  ASSERT_TRUE(sockets.ok());
  const FileDescriptor client = ConnectTo((*sockets)[0].address());
  const FileDescriptor accepted(accept((*sockets)[0].fd(), nullptr, nullptr));
  EXPECT_EQ(PeerKey(accepted.get()), "ip:127.0.0.1");
  EXPECT_THAT(PeerAddress(accepted.get()), StartsWith("127.0.0.1:"));
}

TEST_F(UnixSocketTest, PeerKeyIsTheUser) {
  const auto sockets = Listen(address_);
  ASSERT_TRUE(sockets.ok());
  const FileDescriptor client = ConnectTo("unix:" + path_);
  const FileDescriptor accepted(accept((*sockets)[0].fd(), nullptr, nullptr));
  EXPECT_EQ(PeerKey(accepted.get()), "uid:" + std::to_string(geteuid()));
  EXPECT_EQ(PeerAddress(accepted.get()), "");
}

TEST_F(UnixSocketTest, FileIsForOwnerAndGroupAndGoesWithTheSocket) {
  const mode_t old = umask(077);
  {
    const auto sockets = Listen(address_);
    umask(old);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    struct stat status;
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0660u);
    EXPECT_EQ((*sockets)[0].address(), "unix:" + path_);
    EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
  }
  EXPECT_FALSE(Exists());
}

TEST_F(UnixSocketTest, FileHasTheModeAndGroupThatWereChosen) {
  // Only root may choose a group that it does not belong to.
  const gid_t group = geteuid() == 0 ? 65534 : getegid();
  const auto sockets = Listen(address_, {.mode = 0606, .group = std::to_string(group)});
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0606u);
  EXPECT_EQ(status.st_gid, group);
  EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
}

TEST_F(UnixSocketTest, GroupsMayBeNamed) {
  const auto sockets = Listen(address_, {.group = geteuid() == 0 ? "nogroup" : ""});
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  const auto unknown = Listen(address_, {.group = "no-such-group"});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("socket-group: this host has no group 'no-su"));
}

// As an ordinary user: whoever may not give files away gets no socket, not one with another group.
TEST_F(UnixSocketTest, AGroupThatIsNotOnesOwnIsRefused) {
  const auto listen_as_nobody = [&] {
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
      _exit(9);
    const auto sockets = Listen(address_, {.group = "1"});
    std::fprintf(stderr, "%s\n", std::string(sockets.status().message()).c_str());
    _exit(sockets.ok() || Exists() ? 1 : 0);
  };
  ASSERT_EQ(chmod(path_.substr(0, path_.rfind('/')).c_str(), 0777), 0);
  EXPECT_EXIT(listen_as_nobody(), ::testing::ExitedWithCode(0), "socket-group: cannot give");
}

TEST_F(UnixSocketTest, FileOfAPassedSocketStaysAndGetsItsMode) {
  std::vector<FileDescriptor> passed;
  {
    auto before = Listen(address_);
    ASSERT_TRUE(before.ok());
    passed.push_back(DuplicateOf((*before)[0]));
    (*before)[0].LeaveFile();
  }
  const FileDescriptor client = ConnectTo("unix:" + path_);
  ASSERT_TRUE(client.valid());
  {
    const auto after = Listen(address_, {.mode = 0606}, &passed);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_TRUE(FileDescriptor(accept((*after)[0].fd(), nullptr, nullptr)).valid());
  }
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0606u);
}

TEST_F(UnixSocketTest, APassedSocketThatLostItsFileIsReplaced) {
  std::vector<FileDescriptor> passed;
  {
    auto before = Listen(address_);
    ASSERT_TRUE(before.ok());
    passed.push_back(DuplicateOf((*before)[0]));
  }
  const auto after = Listen(address_, {}, &passed);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
}

TEST_F(UnixSocketTest, FileOfADeadServerIsReplaced) {
  auto sockets = Listen(address_);
  ASSERT_TRUE(sockets.ok());
  const std::string saved = path_ + ".saved";
  ASSERT_EQ(link(path_.c_str(), saved.c_str()), 0);  // survives the server, as after a crash
  sockets->clear();
  ASSERT_EQ(rename(saved.c_str(), path_.c_str()), 0);
  ASSERT_TRUE(Exists());
  const auto again = Listen(address_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
}

TEST_F(UnixSocketTest, FileOfALivingServerIsNotReplaced) {
  const auto sockets = Listen(address_);
  ASSERT_TRUE(sockets.ok());
  EXPECT_EQ(Listen(address_).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
}

TEST_F(UnixSocketTest, FileOfTheNextServerStaysWhenTheFirstStops) {
  auto first = Listen(address_);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(unlink(path_.c_str()), 0);  // somebody tidied up
  const auto second = Listen(address_);
  ASSERT_TRUE(second.ok()) << second.status();
  first->clear();
  EXPECT_TRUE(ConnectTo("unix:" + path_).valid());
}

TEST_F(UnixSocketTest, FileOfAProgramThatTakesNoStreamsIsNotReplaced) {
  const FileDescriptor datagrams(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(datagrams.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const absl::Status status = Listen(address_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::EndsWith("; must be a path where no other server listens"));
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketTest, FileThatIsNoSocketIsNotReplaced) {
  std::ofstream(path_) << "precious";
  const absl::Status status = Listen(address_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::EndsWith("; the file is no socket: remove it"));
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketTest, AMissingFolderIsNamed) {
  address_.unix_path = path_ + "/no/folder";
  const absl::Status status = Listen(address_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::EndsWith("; its folder must exist"));
}

}  // namespace
}  // namespace phasor
