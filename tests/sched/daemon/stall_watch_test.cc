// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/stall_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "shmctl/plane/ledger.h"

namespace gpushare {
namespace {

constexpr pid_t kAgent = 71;
constexpr LedgerKey kGroup{.pid = 500, .start_ticks = 9, .gpu = 0, .client = 3, .group = 4};

class StallWatchTest : public testing::Test {
 protected:
  void publish(pid_t pid, Time now) {
    AgentRecord record;
    record.agent_pid = static_cast<uint32_t>(pid);
    record.published_ns = static_cast<uint64_t>(now.time_since_epoch().count());
    write_record(region_->agent, record);
  }
  uint32_t look_at(Time now) { return watch_.look(*region_, kAgent, now); }
  // Looks so many times, kBetween apart, and returns what the last look said.
  uint32_t last_of(int looks) {
    uint32_t held = 0;
    for (int i = 0; i < looks; ++i) held = look_at(now_ += StallWatch::kBetween);
    return held;
  }

  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Ledger ledger_{*region_};
  StallWatch watch_;
  Time now_{5h};
};

TEST_F(StallWatchTest, AnAgentThatPublishesItselfHasNotStalled) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1, 2}));
  for (int i = 0; i < 10; ++i) {
    publish(kAgent, now_);
    EXPECT_EQ(last_of(StallWatch::kLooks - 1), 0u);
  }
  EXPECT_EQ(last_of(1), 1u);
  EXPECT_EQ(last_of(1), 1u);
  publish(kAgent, now_);
  EXPECT_EQ(last_of(1), 0u);
}

TEST_F(StallWatchTest, LooksThatComeSoonerSayNothing) {
  publish(kAgent, now_);
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(StallWatch::kLooks - 1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(look_at(now_ += 1us), 0u);
  EXPECT_EQ(look_at(now_ += StallWatch::kBetween), 1u);
}

// The clock of a virtual machine may go on while it is paused. Its agent runs before the next look.
TEST_F(StallWatchTest, AMachineThatWasPausedHasNotStalled) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  publish(kAgent, now_);
  EXPECT_EQ(last_of(1), 0u);
  now_ += 1h;
  EXPECT_EQ(last_of(1), 0u);
  publish(kAgent, now_);
  EXPECT_EQ(last_of(2), 0u);
}

TEST_F(StallWatchTest, GroupsAreCountedOnceHoweverManyChannelsTheyHave) {
  publish(kAgent, now_);
  LedgerKey other = kGroup;
  other.group = 5;
  ASSERT_TRUE(
      ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>(std::size_t{3} * kLedgerChannels, 1)));
  ASSERT_TRUE(ledger_.begin_freeze(other, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(StallWatch::kLooks), 2u);
}

TEST_F(StallWatchTest, WithNothingFrozenItMayHang) {
  publish(kAgent, now_);
  EXPECT_EQ(last_of(10), 0u);
  ASSERT_TRUE(ledger_.note_slice(kGroup, 7, 1000));
  EXPECT_EQ(last_of(10), 0u) << "a slice keeps no process from running";
  const auto index = ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1});
  ASSERT_TRUE(index);
  EXPECT_EQ(last_of(1), 1u);
  ledger_.end_thaw(*index);
  EXPECT_EQ(last_of(1), 0u);
}

// The record is that of the agent before it: this one has just begun.
TEST_F(StallWatchTest, AnAgentThatHasNotPublishedItselfHasNotStalled) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(10), 0u);
  publish(kAgent + 1, now_);
  EXPECT_EQ(last_of(10), 0u);
}

}  // namespace
}  // namespace gpushare
