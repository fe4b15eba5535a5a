// SPDX-License-Identifier: Apache-2.0
#include "intercept/process_stop.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

class ProcessStopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pid_ = ::fork();
    ASSERT_NE(pid_, -1);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    process_ = {pid_, start_ticks_of(pid_)};
  }
  void TearDown() override {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // The next change of the child's state.
  int next_status() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED | WCONTINUED), pid_);
    return status;
  }
  pid_t pid_ = -1;
  ProcessId process_;
};

TEST_F(ProcessStopTest, StopsAndResumes) {
  ASSERT_TRUE(stop_process(process_));
  EXPECT_TRUE(WIFSTOPPED(next_status()));
  ASSERT_TRUE(resume_process(process_));
  EXPECT_TRUE(WIFCONTINUED(next_status()));
  EXPECT_TRUE(resume_process(process_)) << "harmless to one that runs";
}

TEST_F(ProcessStopTest, LeavesANewBearerOfThePidAlone) {
  const Result<> stopped = stop_process({pid_, process_.start_ticks + 1});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, std::errc::no_such_process);
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED | WNOHANG), 0);
}

TEST(ProcessStop, SaysWhenThereIsNoSuchProcess) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  const ProcessId process{gone, start_ticks_of(gone)};
  ::waitpid(gone, nullptr, 0);
  const Result<> stopped = stop_process(process);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, std::errc::no_such_process);
}

}  // namespace
}  // namespace gpushare
