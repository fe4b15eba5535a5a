// SPDX-License-Identifier: Apache-2.0
#include "sched/stuck.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "shmctl/ledger.h"

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
  uint32_t held_at(Time now) const { return held_by_stuck(*region_, kAgent, now); }

  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Ledger ledger_{*region_};
  const Time start_{std::chrono::hours(5)};
};

TEST_F(StuckTest, OneThatPublishesHoldsWhatItHolds) {
  publish(kAgent, start_);
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(held_at(start_), 0u);
  EXPECT_EQ(held_at(start_ + kStuckAfter - Nanos(1)), 0u);
  EXPECT_EQ(held_at(start_ + kStuckAfter), 1u);
  publish(kAgent, start_ + kStuckAfter);
  EXPECT_EQ(held_at(start_ + kStuckAfter), 0u);
  EXPECT_EQ(held_at(start_), 0u) << "it has published itself since the instant was taken";
}

TEST_F(StuckTest, GroupsAreCountedOnceHoweverManyChannelsTheyHave) {
  publish(kAgent, start_);
  LedgerKey other = kGroup;
  other.group = 5;
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>(3 * kLedgerChannels, 1)));
  ASSERT_TRUE(ledger_.begin_freeze(other, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(held_at(start_ + kStuckAfter), 2u);
}

TEST_F(StuckTest, WithNothingFrozenItMayHang) {
  publish(kAgent, start_);
  EXPECT_EQ(held_at(start_ + 100 * kStuckAfter), 0u);
  ASSERT_TRUE(ledger_.note_slice(kGroup, 7, 1000));
  EXPECT_EQ(held_at(start_ + 100 * kStuckAfter), 0u) << "a slice keeps nobody from running";
  const auto index = ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1});
  ASSERT_TRUE(index);
  EXPECT_EQ(held_at(start_ + 100 * kStuckAfter), 1u);
  ledger_.end_thaw(*index);
  EXPECT_EQ(held_at(start_ + 100 * kStuckAfter), 0u);
}

// The one before it wrote the record: this one has just begun.
TEST_F(StuckTest, OneThatHasNotPublishedItselfIsNotStuck) {
  ASSERT_TRUE(ledger_.begin_freeze(kGroup, 7, std::vector<uint32_t>{1}));
  EXPECT_EQ(held_at(start_), 0u);
  publish(kAgent + 1, start_);
  EXPECT_EQ(held_at(start_ + 100 * kStuckAfter), 0u);
}

}  // namespace
}  // namespace gpushare
