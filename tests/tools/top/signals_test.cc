// SPDX-License-Identifier: Apache-2.0
// gpushare-top's signals reach the process that was meant, and no other one.
#include "tools/top/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

TEST(TopSignals, GoToThatProcessOrToNone) {
  const pid_t child = ::fork();
  if (child == 0)
    while (true) ::pause();
  const uint64_t start = start_ticks_of(child);
  ASSERT_NE(start, 0u);
  // The pid as another process would have had it.
  const auto other = send_signal({.process = {child, start - 1}, .number = SIGKILL});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, std::errc::no_such_process);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);

  EXPECT_TRUE(send_signal({.process = {child, start}, .number = SIGTERM}));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  const auto ended = send_signal({.process = {child, start}, .number = SIGTERM});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, std::errc::no_such_process) << ended.error().message();
}

}  // namespace
}  // namespace gpushare
