// SPDX-License-Identifier: Apache-2.0
#include "sched/module/refusal_log.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Processes below 1000 are those of user 1, and others of user 2.
class RefusalLogTest : public ::testing::Test {
 protected:
  bool is_said(Time now, pid_t pid) {
    return log_.note(now, ControlRefused{{pid, static_cast<uint64_t>(pid)}, 0x17});
  }

  RefusalLog log_{[](pid_t pid) { return pid < 1000 ? uid_t{1} : uid_t{2}; }};
};

TEST_F(RefusalLogTest, OneUsersProcessesHideNobodyElses) {
  EXPECT_TRUE(is_said(Time(1s), 10));
  for (pid_t pid = 11; pid < 500; ++pid) EXPECT_FALSE(is_said(Time(1s), pid)) << "one a second";
  EXPECT_TRUE(is_said(Time(1s), 2000)) << "another user's";
  EXPECT_TRUE(is_said(Time(2s), 11));
  EXPECT_FALSE(is_said(Time(9s), 10)) << "of each process once";
  EXPECT_FALSE(is_said(Time(9s), 11));
}

}  // namespace
}  // namespace gpushare
