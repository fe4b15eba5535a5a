// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/user_budget.h"

#include <gtest/gtest.h>

#include "shmctl/base/log_limit.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

int taken(UserBudget& budget, uid_t user, Time now, int attempts) {
  int count = 0;
  for (int i = 0; i < attempts; ++i) count += budget.take(user, now);
  return count;
}

TEST(UserBudgetTest, AUserHasABurstAndThenOneEachInterval) {
  UserBudget budget(10ms, 5);
  const Time start{1h};
  EXPECT_EQ(taken(budget, 1000, start, 100), 5);
  EXPECT_EQ(taken(budget, 1000, start + 9ms, 100), 0);
  EXPECT_EQ(taken(budget, 1000, start + 10ms, 100), 1);
  EXPECT_EQ(taken(budget, 1000, start + 1h, 100), 5) << "a rest fills the bucket, and no more";
}

TEST(UserBudgetTest, OneUsersFloodTakesNothingFromAnother) {
  UserBudget budget(10ms, 5);
  const Time start{1h};
  for (int i = 0; i < 10'000; ++i) (void)budget.take(1000, start);
  EXPECT_EQ(taken(budget, 1001, start, 100), 5);
}

TEST(UserBudgetTest, ManyUserIdsMakeItForgetAndNotGrow) {
  UserBudget budget(10ms, 5);
  const Time start{1h};
  for (uid_t user = 0; user < 100'000; ++user) EXPECT_TRUE(budget.take(user, start));
  EXPECT_TRUE(budget.take(500'000, start));
}

TEST(LogLimitTest, AFloodIsCutAndCounted) {
  LogLimit limit;
  const Time start{1h};
  uint32_t written = 0;
  for (uint32_t i = 0; i < LogLimit::kBurst + 800; ++i)
    written += limit.admit(LogLevel::kWarning, start) == 0;
  EXPECT_EQ(written, LogLimit::kBurst);
  EXPECT_EQ(limit.admit(LogLevel::kWarning, start + 10 * LogLimit::kBetween), 800);
  EXPECT_EQ(limit.admit(LogLevel::kWarning, start + 10 * LogLimit::kBetween), 0);
}

TEST(LogLimitTest, OneUsersFloodHidesNobodyElsesLines) {
  constexpr uid_t kFlooding = 1000, kOther = 1001;
  LogLimit limit;
  const Time start{1h};
  uint32_t written = 0;
  for (int i = 0; i < 10'000; ++i)
    written += limit.admit(LogLevel::kWarning, start, kFlooding).has_value();
  EXPECT_EQ(written, LogLimit::kUserBurst);
  EXPECT_FALSE(limit.admit(LogLevel::kError, start, kFlooding)) << "of any level";
  EXPECT_TRUE(limit.admit(LogLevel::kWarning, start, kOther));
  for (uint32_t i = LogLimit::kUserBurst + 1; i < LogLimit::kBurst; ++i)
    EXPECT_TRUE(limit.admit(LogLevel::kWarning, start)) << "about nobody";
  EXPECT_FALSE(limit.admit(LogLevel::kWarning, start, kOther)) << "all users together";
  EXPECT_TRUE(limit.admit(LogLevel::kWarning, start + LogLimit::kUserBetween, kFlooding));
}

TEST(LogLimitTest, WarningsNeverKeepAnErrorOut) {
  LogLimit limit;
  const Time start{1h};
  for (int i = 0; i < 10'000; ++i) (void)limit.admit(LogLevel::kWarning, start);
  EXPECT_TRUE(limit.admit(LogLevel::kError, start).has_value());
}

}  // namespace
}  // namespace gpushare
