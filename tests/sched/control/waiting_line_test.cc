// SPDX-License-Identifier: Apache-2.0
#include "sched/control/waiting_line.h"

#include <gtest/gtest.h>

#include "shmctl/plane/slots.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class WaitingLineTest : public ::testing::Test {
 protected:
  void ask(pid_t pid, uint64_t bytes, uint32_t uid = 1000) {
    line_.note({.process = {pid, 1}, .uid = uid, .bytes = bytes, .why = "memory"}, now_);
  }
  std::vector<pid_t> published() {
    line_.publish(*region_, now_);
    std::vector<pid_t> pids;
    for (const auto& slot : region_->waiting)
      if (is_written(slot) && read_record(slot)->pid != 0) pids.push_back(read_record(slot)->pid);
    return pids;
  }
  std::size_t before(pid_t pid) const { return line_.before({pid, 1}, now_).size(); }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  WaitingLine line_;
  Time now_{100s};
};

TEST_F(WaitingLineTest, PlacesAreByWhoAskedFirst) {
  for (const pid_t pid : {7, 5, 9}) ask(pid, 1);
  now_ += 1s;
  for (const pid_t pid : {9, 7, 5}) ask(pid, 1);
  EXPECT_EQ(published(), (std::vector<pid_t>{7, 5, 9}));
  EXPECT_EQ(before(7), 0U);
  EXPECT_EQ(before(9), 2U);
  EXPECT_EQ(before(4), 3U) << "it has not asked yet";
  EXPECT_EQ(read_record(region_->waiting[0])->since_ns, 100'000'000'000U) << "since it asked first";
  line_.forget({5, 1});
  EXPECT_EQ(published(), (std::vector<pid_t>{7, 9}));
  EXPECT_EQ(before(9), 1U);
}

TEST_F(WaitingLineTest, WhoAsksNoMoreIsGone) {
  ask(7, 1);
  ask(5, 1);
  for (Time until = now_ + WaitingLine::kSilent; now_ < until; ask(5, 1)) now_ += 1s;
  EXPECT_EQ(before(5), 0U) << "it keeps nothing, even before the next publication";
  EXPECT_EQ(published(), std::vector<pid_t>{5});
}

// What it needs may be held by a program that never ends.
TEST_F(WaitingLineTest, AfterTenMinutesNothingIsKeptForIt) {
  ask(7, 1);
  ask(5, 1);
  for (now_ += 1s; now_ < Time{100s} + WaitingLine::kReserves; now_ += 1s) {
    EXPECT_EQ(before(5), 1U);
    ask(7, 1);
    ask(5, 1);
  }
  EXPECT_EQ(before(5), 0U);
  EXPECT_EQ(published(), (std::vector<pid_t>{7, 5})) << "it keeps its place";
}

TEST_F(WaitingLineTest, AUserWithManyRunsLeavesRoomForOthers) {
  for (pid_t pid = 1; pid <= 1000; ++pid) ask(pid, 1);
  ask(2000, 1, 1001);
  EXPECT_EQ(line_.all().size(), WaitingLine::kMostOfAUser + 1);
  EXPECT_EQ(published().back(), 2000);
  for (uint32_t uid = 2000; uid < 2100; ++uid) ask(static_cast<pid_t>(1000 + uid), 1, uid);
  EXPECT_EQ(published().size(), kMaxWaiting) << "as many as there is room for";
}

TEST_F(WaitingLineTest, TheNextAgentTakesItOver) {
  line_.note({.process = {7, 1},
              .uid = 1000,
              .bytes = 5,
              .length = 3s,
              .gpu = 1,
              .command = "python t.py ",
              .why = "memory"},
             now_);
  ask(5, 1);
  EXPECT_EQ(published(), (std::vector<pid_t>{7, 5}));
  now_ += 3s;
  WaitingLine next;
  next.take_over(*region_, now_);
  ASSERT_EQ(next.all().size(), 2U);
  EXPECT_EQ(next.all()[0].process, (ProcessId{7, 1}));
  EXPECT_EQ(next.all()[0].bytes, 5U);
  EXPECT_EQ(next.all()[0].length, Nanos(3s));
  EXPECT_EQ(next.all()[0].gpu, 1U);
  EXPECT_EQ(next.all()[0].command, "python t.py");
  EXPECT_EQ(next.all()[0].since, Time{100s});
  EXPECT_EQ(next.all()[1].gpu, std::nullopt);
  EXPECT_EQ(next.before({5, 1}, now_).size(), 1U);
  next.publish(*region_, now_ + WaitingLine::kSilent);
  EXPECT_TRUE(next.all().empty()) << "nobody asks the next one";
}

TEST_F(WaitingLineTest, WhatAnAgentBeforeHasLeftIsCleared) {
  WaitingRecord left;
  left.pid = 99;
  write_record(region_->waiting[60], left);
  EXPECT_EQ(published(), std::vector<pid_t>{});
  ask(7, 1);
  EXPECT_EQ(published(), std::vector<pid_t>{7});
  line_.forget({7, 1});
  EXPECT_EQ(published(), std::vector<pid_t>{});
}

}  // namespace
}  // namespace gpushare
