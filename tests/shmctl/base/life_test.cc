// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "shmctl/base/pidfd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

// While it lives, this process opens no more descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class LifeTest : public ::testing::Test {
 protected:
  LifeTest() : child_{::fork(), 0} {
    if (child_.pid == 0) {
      ::pause();
      ::_exit(0);
    }
    child_.start_ticks = start_ticks_of(child_.pid);
  }
  ~LifeTest() override {
    ::kill(child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
  }
  ProcessId child_;
};

TEST_F(LifeTest, IsAliveUntilItEnds) {
  EXPECT_EQ(life_of(child_), Life::kAlive);
  EXPECT_EQ(life_of({child_.pid, 0}), Life::kAlive);
  EXPECT_EQ(life_of({child_.pid, child_.start_ticks + 1}), Life::kEnded);
  siginfo_t ended{};
  ::kill(child_.pid, SIGKILL);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child_.pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(life_of(child_), Life::kEnded) << "nobody has waited for it yet";
  ::waitpid(child_.pid, nullptr, 0);
  EXPECT_EQ(life_of(child_), Life::kEnded);
  EXPECT_EQ(life_of({-1, 0}), Life::kEnded);
}

TEST_F(LifeTest, WithoutDescriptorsItIsUnknownUnlessNobodyHasThePid) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const ProcessId child = child_;
  const auto [of_child, of_gone] = [&] {  // a sanitizer's checks of objects need descriptors, too
    const NoDescriptors none;
    return std::pair(life_of(child), life_of({gone, 1}));
  }();
  EXPECT_EQ(of_child, Life::kUnknown);
  EXPECT_EQ(of_gone, Life::kEnded);
}

TEST_F(LifeTest, APidfdThatCannotBeOpenedDoesNotMeanThatTheProcessIsGone) {
  const ProcessId child = child_;  // a sanitizer's checks of objects need descriptors, too
  for (rlim_t left = 0; left < 64; ++left) {  // fails in its first, its second step, or not at all
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{.rlim_cur = left, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto opened = open_pidfd(child.pid, child.start_ticks, "test");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    if (!opened) {
      EXPECT_NE(opened.error().code, std::errc::no_such_process) << left;
    }
  }
  EXPECT_EQ(open_pidfd(child.pid, child.start_ticks + 1, "test").error().code,
            std::errc::no_such_process);
}

}  // namespace
}  // namespace gpushare
