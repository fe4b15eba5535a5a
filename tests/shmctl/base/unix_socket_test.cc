// SPDX-License-Identifier: Apache-2.0
// Whose name is taken over, and whose not: tests/sched/system/hangs_system_test.cc has those of
// processes that have died with a thread in the driver.
#include "shmctl/base/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

class UnixSocketTest : public ::testing::Test {
 protected:
  Result<Fd> listen() const { return listen_on_socket(path_, 0640, "listen"); }
  std::error_code refusal() const {
    const auto socket = listen();
    return socket ? std::error_code() : socket.error().code;
  }
  const TempFolder folder_ = TempFolder::make("gpushare-socket").value();
  const std::string path_ = folder_.path() + "/a.sock";
};

TEST_F(UnixSocketTest, IsListenedOnByOneAndTakenOverAfterIt) {
  auto first = listen();
  ASSERT_TRUE(first) << first.error().message();
  struct stat made{};
  ASSERT_EQ(::stat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0640U);
  EXPECT_EQ(refusal(), std::errc::address_in_use);
  first->reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(listen());
}

TEST_F(UnixSocketTest, OfOneThatHasGoneIsItsHeirsAsLongAsThatLives) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto listening = listen();
    if (::fork() != 0) ::_exit(0);
    const pid_t self = ::getpid();
    if (listening) (void)!::write(ready[1], &self, sizeof self);
    while (true) ::pause();
  }
  pid_t heir = 0;
  ASSERT_EQ(::read(ready[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(refusal(), std::errc::address_in_use);
  EXPECT_EQ(::kill(heir, SIGKILL), 0);
  for (const int end : ready) ::close(end);
}

TEST_F(UnixSocketTest, IsNotMadeInPlaceOfAnotherFile) {
  std::ofstream(path_) << "somebody's";
  EXPECT_EQ(refusal(), std::errc::file_exists);
  EXPECT_EQ(std::filesystem::file_size(path_), 10U);
}

}  // namespace
}  // namespace gpushare
