// SPDX-License-Identifier: Apache-2.0
// Tests what is sent to systemd, and what is taken from it.
#include "server/net/systemd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "server/base/file_descriptor.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_systemd.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using testing::FakeSystemd;
using ::testing::IsEmpty;

TEST(PassedDescriptorsTest, AreThoseAfterStandardError) {
  // In a process of its own, because the numbers are fixed.
  const auto passed_as_numbered = [] {
    for (const int fd : {3, 4}) dup2(STDERR_FILENO, fd);
    close(5);
    const std::vector<int> passed = PassedDescriptors(std::to_string(getpid()), "3");
    const bool right = passed == std::vector<int>{3, 4} && fcntl(4, F_GETFD) == FD_CLOEXEC;
    _exit(right ? 0 : 1);
  };
  EXPECT_EXIT(passed_as_numbered(), ::testing::ExitedWithCode(0), "");
}

TEST(PassedDescriptorsTest, VariablesOfAnotherProcessOrWithoutSenseAreIgnored) {
  const std::string me = std::to_string(getpid());
  EXPECT_THAT(PassedDescriptors(std::to_string(getppid()), "3"), IsEmpty());
  EXPECT_THAT(PassedDescriptors({}, {}), IsEmpty());
  EXPECT_THAT(PassedDescriptors(me, {}), IsEmpty());
  EXPECT_THAT(PassedDescriptors(me, "-1"), IsEmpty());
  EXPECT_THAT(PassedDescriptors(me, "three"), IsEmpty());
}

TEST(NotifySystemdTest, SendsItsStateToAFileOrAnAbstractAddress) {
  const testing::TempDir folder;
  for (const std::string& path : {folder.path() + "/notify", "@phasor" + folder.path()}) {
    const FakeSystemd systemd(path);
    ASSERT_TRUE(NotifySystemd(path, "READY=1"));
    EXPECT_TRUE(Eventually([&] { return !systemd.messages().empty(); }));
    EXPECT_THAT(systemd.messages(), ElementsAre("READY=1"));
  }
}

TEST(NotifySystemdTest, FailsWhereNobodyListens) {
  const testing::TempDir folder;
  EXPECT_FALSE(NotifySystemd("", "READY=1"));
  EXPECT_FALSE(NotifySystemd(folder.path() + "/nobody", "READY=1"));
  EXPECT_FALSE(NotifySystemd("/" + std::string(200, 'x'), "READY=1"));
}

TEST(KeepDescriptorsTest, KeepsTheseAndNoneOfBefore) {
  const testing::TempDir folder;
  const FakeSystemd systemd(folder.path() + "/notify");
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor read_end(ends[0]), write_end(ends[1]);
  ASSERT_TRUE(KeepDescriptors(systemd.path(), {read_end.get(), write_end.get()}));
  ASSERT_TRUE(KeepDescriptors(systemd.path(), {write_end.get()}));
  ASSERT_TRUE(Eventually([&] { return systemd.messages().size() == 4; }));
  const std::vector<FileDescriptor> kept = systemd.Passed();
  ASSERT_EQ(kept.size(), 1u);
  ASSERT_EQ(write(kept[0].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 1);
}

TEST(ForgetDescriptorsTest, ReturnsWhenNothingIsKeptAnyMore) {
  const testing::TempDir folder;
  const FakeSystemd systemd(folder.path() + "/notify");
  ASSERT_TRUE(KeepDescriptors(systemd.path(), {STDERR_FILENO}));
  ForgetDescriptors(systemd.path());
  EXPECT_THAT(systemd.Passed(), IsEmpty());
  EXPECT_EQ(systemd.messages().back(), "BARRIER=1");
}

}  // namespace
}  // namespace phasor
