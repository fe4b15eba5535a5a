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

class StuckTest : public testing::Test {
 protected:
  void publish(pid_t pid, Time now) {
    AgentRecord record;
    record.agent_pid = static_cast<uint32_t>(pid);
    record.published_ns = static_cast<uint64_t>(now.time_since_epoch().count());
    write_record(region_->agent, record);
  }
  uint32_t look_at(Time now) { return watch_.look(*region_, kAgent, now); }
  // The last of so many looks, kBetween apart, the first one now.
  uint32_t last_of(int looks) {
    uint32_t held = 0;
    for (int i = 0; i < looks; ++i) held = look_at(now_ += StuckWatch::kBetween);
    return held;
  }

  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Ledger ledger_{*region_};
  StuckWatch watch_;
  Time now_{std::chrono::hours(5)};
};

TEST_F(StuckTest, OneThatPublishesItselfHoldsWhatItHolds) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1, 2}));
  for (int i = 0; i < 10; ++i) {
    publish(kAgent, now_);
    EXPECT_EQ(last_of(StuckWatch::kLooks - 1), 0u);
  }
  EXPECT_EQ(last_of(1), 1u);
  EXPECT_EQ(last_of(1), 1u);
  publish(kAgent, now_);
  EXPECT_EQ(last_of(1), 0u);
}

TEST_F(StuckTest, LooksThatComeSoonerSayNothing) {
  publish(kAgent, now_);
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(StuckWatch::kLooks - 1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(look_at(now_ += Nanos(1000)), 0u);
  EXPECT_EQ(look_at(now_ += StuckWatch::kBetween), 1u);
}

// A virtual machine's clock may go on: the agent gets its turn before the next look.
TEST_F(StuckTest, AMachineThatWasPausedIsNotStuck) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  publish(kAgent, now_);
  EXPECT_EQ(last_of(1), 0u);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(last_of(1), 0u);
  publish(kAgent, now_);
  EXPECT_EQ(last_of(2), 0u);
}

TEST_F(StuckTest, GroupsAreCountedOnceHoweverManyChannelsTheyHave) {
  publish(kAgent, now_);
  LedgerKey other = kGroup;
  other.group = 5;
  ASSERT_TRUE(
      ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>(std::size_t{3} * kLedgerChannels, 1)));
  ASSERT_TRUE(ledger_.begin_freeze(other, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(StuckWatch::kLooks), 2u);
}

TEST_F(StuckTest, WithNothingFrozenItMayHang) {
  publish(kAgent, now_);
  EXPECT_EQ(last_of(10), 0u);
  ASSERT_TRUE(ledger_.note_slice(kGroup, 7, 1000));
  EXPECT_EQ(last_of(10), 0u) << "a slice keeps nobody from running";
  const auto index = ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1});
  ASSERT_TRUE(index);
  EXPECT_EQ(last_of(1), 1u);
  ledger_.end_thaw(*index);
  EXPECT_EQ(last_of(1), 0u);
}

// The one before it wrote the record: this one has just begun.
TEST_F(StuckTest, OneThatHasNotPublishedItselfIsNotStuck) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(last_of(10), 0u);
  publish(kAgent + 1, now_);
  EXPECT_EQ(last_of(10), 0u);
}

}  // namespace
}  // namespace gpushare
