// SPDX-License-Identifier: Apache-2.0
// The machine's own driver calls, as far as a machine without the driver shows them.
#include "intercept/nvrm/driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace gpushare::nvrm {
namespace {

// A copy of this process that waits under the name `command` until it is killed.
class Child {
 public:
  explicit Child(const char* command) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_NAME, command);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Field 22, counted from behind the last parenthesis, word by word.
uint64_t ticks_by_words(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  std::istringstream words(text.str().substr(text.str().rfind(')') + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) words >> word;
  return std::stoull(word);
}

TEST(StartTicks, AreThoseInProc) {
  EXPECT_GT(start_ticks_of(::getpid()), 0u);
  EXPECT_EQ(start_ticks_of(::getpid()), ticks_by_words(::getpid()));
}

// A program chooses its name: none may hide it or lend it another start time.
TEST(StartTicks, AnyNameIsReadOver) {
  for (const char* name : {"a) R 1 2 3", ") ", "(((", "a\nb", "\n", ") S\n0 0 0", " "}) {
    Child child(name);
    ASSERT_GT(child.pid(), 0);
    EXPECT_GT(start_ticks_of(child.pid()), 0u) << name;
    EXPECT_EQ(start_ticks_of(child.pid()), ticks_by_words(child.pid())) << name;
  }
}

TEST(StartTicks, OfNoProcessAreZero) {
  EXPECT_EQ(start_ticks_of(0x7FFFFFF0), 0u);
  EXPECT_EQ(start_ticks_of(-1), 0u);
}

TEST(SystemDriver, AMissingDeviceIsNoSuchDevice) {
  auto fd = system_driver().open(200);  // no machine has so many
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code, std::errc::no_such_device);
  EXPECT_NE(fd.error().message().find("/dev/nvidia200"), std::string::npos);
}

TEST(SystemDriver, ProcessesIncludeThisOne) {
  EXPECT_TRUE(std::ranges::count(system_driver().processes(), ::getpid()));
}

TEST(SystemDriver, OtherDescriptorsAreNotControlFiles) {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(std::ranges::count(system_driver().control_fds(::getpid()), null.get()));
  EXPECT_TRUE(system_driver().control_fds(0x7FFFFFF0).empty());
}

TEST(SystemDriver, FetchRefusesWhatIsNoDriverFile) {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto copy = system_driver().fetch({::getpid(), start_ticks_of(::getpid())}, null.get());
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_device) << copy.error().message();
}

TEST(SystemDriver, FetchOfAClosedNumberIsABadDescriptor) {
  auto copy = system_driver().fetch({::getpid(), 0}, 100'000);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::bad_file_descriptor) << copy.error().message();
}

TEST(SystemDriver, FetchFromADeadProcessIsNoSuchProcess) {
  Child child("short");
  const pid_t pid = child.pid();
  const uint64_t ticks = start_ticks_of(pid);
  child.end();
  auto copy = system_driver().fetch({pid, ticks}, 0);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_process);
}

TEST(SystemDriver, FetchFromAnotherProcessUnderThePidIsNoSuchProcess) {
  auto copy = system_driver().fetch({::getpid(), start_ticks_of(::getpid()) + 1}, 0);
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, std::errc::no_such_process);
}

}  // namespace
}  // namespace gpushare::nvrm
