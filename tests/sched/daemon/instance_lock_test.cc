// SPDX-License-Identifier: Apache-2.0
// Whose lock may be taken over, and whose not: tests/sched/system/hangs_system_test.cc has those of
// processes that have died with a thread in the driver.
#include "sched/daemon/instance_lock.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "shmctl/program/temp_folder.h"
#include "shmctl/shim/protocol.h"

namespace gpushare {
namespace {

class InstanceLockTest : public ::testing::Test {
 protected:
  Result<InstanceLock> lock() const { return lock_driver(folder_.path() + "/sim.sock"); }
  std::string text() const {
    std::ifstream file(folder_.path() + "/sim.sock.lock");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const TempFolder folder_ = TempFolder::make("gpushare-lock").value();
};

TEST_F(InstanceLockTest, IsHadByOneAndFreeAfterIt) {
  auto first = lock();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_TRUE(first->left.empty());
  const auto second = lock();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
  EXPECT_TRUE(second.error().message().contains(std::to_string(::getpid())));
  first->file.reset();
  EXPECT_TRUE(lock());
}

// As the lock of a process in a container, whose /proc is another one: here no process at all has
// the file open, because its descriptor is on its way from one to another.
TEST_F(InstanceLockTest, OfWhomeverCannotBeSeenIsNotTakenOver) {
  auto first = lock();
  ASSERT_TRUE(first);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Fd from(ends[0]), to(ends[1]);
  uint32_t nothing = 0;
  DescriptorMessage message(&nothing, sizeof nothing);
  message.put(first->file.get(), -1);
  ASSERT_GT(::sendmsg(from.get(), message.get(), 0), 0);
  first->file.reset();
  const auto second = lock();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
}

// One that had to do without the lock writes that down: the next one finds it free and looks who
// has the file open.
TEST_F(InstanceLockTest, OfOneThatHadToDoWithoutItIsRespectedWhileItLives) {
  {
    ASSERT_TRUE(lock());
  }
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream file(folder_.path() + "/sim.sock.lock");
    file << ::getpid() << "\nwithout lock" << std::flush;
    (void)!::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  const auto beside = lock();
  ASSERT_FALSE(beside);
  EXPECT_TRUE(beside.error().message().contains(std::to_string(child)));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto after = lock();
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_TRUE(after->left.empty());
  EXPECT_EQ(text(), std::to_string(::getpid()));
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace gpushare
