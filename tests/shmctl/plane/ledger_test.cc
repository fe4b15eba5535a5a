// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <vector>

#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr LedgerKey kGroup{
    .pid = 100, .start_ticks = 7, .gpu = 1, .client = 0xC1D00001, .group = 5};

std::vector<uint32_t> handles(uint32_t count) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0x5C000000);
  return all;
}

class LedgerTest : public testing::Test {
 protected:
  Region& region() { return plane_.region(); }
  Ledger& ledger() { return ledger_; }

  // What a recovery reads.
  std::vector<LedgerRecord> listed() {
    std::vector<LedgerRecord> all;
    for_each_entry(region(), [&](uint32_t, const LedgerRecord& entry) { all.push_back(entry); });
    return all;
  }
  static std::vector<uint32_t> channels_of(const LedgerRecord& entry) {
    return {entry.channels, entry.channels + entry.channel_count};
  }

 private:
  TempPlane plane_;
  Ledger ledger_{plane_.region()};
};

TEST_F(LedgerTest, FreezeIsListedWithAllThatItsThawNeeds) {
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(8)));
  const auto entries = listed();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].pid, kGroup.pid);
  EXPECT_EQ(entries[0].start_ticks, kGroup.start_ticks);
  EXPECT_EQ(entries[0].gpu, kGroup.gpu);
  EXPECT_EQ(entries[0].client, kGroup.client);
  EXPECT_EQ(entries[0].group, kGroup.group);
  EXPECT_EQ(entries[0].fd, 33);
  EXPECT_EQ(entries[0].freezes, 1u);
  EXPECT_EQ(entries[0].slice_changed, 0u);
  EXPECT_THAT(channels_of(entries[0]), ElementsAreArray(handles(8)));
}

TEST_F(LedgerTest, FreezesAreCounted) {
  const auto first = ledger().begin_freeze(kGroup, 33, handles(8));
  const auto second = ledger().begin_freeze(kGroup, 33, handles(8));
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(listed()[0].freezes, 2u);
  ledger().end_thaw(*first);
  EXPECT_EQ(listed()[0].freezes, 1u);
  ledger().end_thaw(*first);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, SurplusThawIsHarmless) {
  const auto index = ledger().begin_freeze(kGroup, 33, handles(1));
  for (int i = 0; i < 3; ++i) ledger().end_thaw(*index);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, ChannelsFrozenEarlierStayListedBesideNewOnes) {
  const uint32_t first[] = {1, 2}, second[] = {2, 3};
  const auto index = ledger().begin_freeze(kGroup, 33, first);
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, second));
  EXPECT_THAT(channels_of(listed()[0]), ElementsAre(1, 2, 3));
  ledger().end_thaw(*index);
  ledger().end_thaw(*index);
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, second));
  EXPECT_THAT(channels_of(listed()[0]), ElementsAre(2, 3));
}

TEST_F(LedgerTest, LargeGroupTakesSeveralEntriesThatGoTogether) {
  const auto index = ledger().begin_freeze(kGroup, 33, handles(150));
  const auto entries = listed();
  ASSERT_EQ(entries.size(), 3u);
  std::multiset<uint32_t> parts, channels;
  for (const LedgerRecord& entry : entries) {
    parts.insert(entry.part);
    EXPECT_EQ(entry.freezes, 1u);
    for (const uint32_t channel : channels_of(entry)) channels.insert(channel);
  }
  EXPECT_THAT(parts, ElementsAre(0, 1, 2));
  EXPECT_THAT(channels, ElementsAreArray(handles(150)));
  ledger().end_thaw(*index);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, FirstSliceNotedIsTheOriginal) {
  const auto index = ledger().note_slice(kGroup, 33, 2048);
  ASSERT_TRUE(ledger().note_slice(kGroup, 33, 5000));
  EXPECT_EQ(listed()[0].slice_changed, 1u);
  EXPECT_EQ(listed()[0].original_slice_us, 2048u);
  ledger().end_slice(*index);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, EntryStaysUntilFreezeAndSliceAreBothUndone) {
  const auto slice = ledger().note_slice(kGroup, 33, 2048);
  const auto freeze = ledger().begin_freeze(kGroup, 33, handles(2));
  EXPECT_EQ(*slice, *freeze);
  ledger().end_thaw(*freeze);
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_EQ(listed()[0].original_slice_us, 2048u);
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(2)));
  ledger().end_slice(*slice);
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_EQ(listed()[0].freezes, 1u);
  EXPECT_EQ(listed()[0].slice_changed, 0u);
}

TEST_F(LedgerTest, TellsItsGroupsAndHowOftenTheyAreFrozen) {
  LedgerKey other = kGroup;
  other.group = 6;
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(100)));
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(100)));
  ASSERT_TRUE(ledger().note_slice(other, 33, 1));
  EXPECT_THAT(ledger().groups(), ElementsAre(kGroup, other));
  EXPECT_EQ(ledger().freezes(kGroup), 2u);
  EXPECT_EQ(ledger().freezes(other), 0u);
  ledger().clear_group(kGroup);
  EXPECT_EQ(ledger().freezes(kGroup), 0u);
}

TEST_F(LedgerTest, ClearedGroupLeavesTheOthers) {
  LedgerKey other = kGroup;
  other.group = 6;
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(65)));
  ASSERT_TRUE(ledger().begin_freeze(other, 33, handles(1)));
  ledger().clear_group(kGroup);
  ledger().clear_group(kGroup);
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_EQ(listed()[0].group, 6u);
}

TEST_F(LedgerTest, WhenFullItRefusesWithoutWritingAndGoesOnWhenThereIsRoom) {
  LedgerKey key = kGroup;
  for (key.pid = 1; key.pid < int{kMaxLedger}; ++key.pid)
    ASSERT_TRUE(ledger().note_slice(key, 33, 1)) << key.pid;
  const auto refused = ledger().begin_freeze(key, 33, handles(65));  // two entries, one is free
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::no_space_on_device);
  EXPECT_EQ(listed().size(), kMaxLedger - 1);
  EXPECT_TRUE(ledger().begin_freeze(key, 33, handles(64)));
  for (const LedgerKey& group : ledger().groups()) ledger().clear_group(group);
  EXPECT_TRUE(listed().empty());
  EXPECT_TRUE(ledger().begin_freeze(key, 33, handles(65)));
}

TEST_F(LedgerTest, OneProcessCannotUseUpWhatTheOthersNeed) {
  const auto grow = [&](LedgerKey key) {
    while (ledger().begin_freeze(key, 33, handles(200))) ++key.group;  // four entries each
    return key.group;
  };
  LedgerKey key = kGroup;
  for (key.pid = 1000; key.pid < 1010; ++key.pid) EXPECT_GT(grow(key), 5u) << key.pid;
  EXPECT_LT(listed().size(), kMaxLedger - 100);
  for (key.pid = 2000; key.pid < 2100; ++key.pid)
    EXPECT_TRUE(ledger().begin_freeze(key, 33, handles(8))) << key.pid;
  // Also a hog can be stopped itself, which takes one entry.
  const LedgerKey process{.pid = 1000, .start_ticks = kGroup.start_ticks, .gpu = 1};
  EXPECT_TRUE(ledger().begin_freeze(process, -1, {}));
}

TEST_F(LedgerTest, NextLedgerTakesOverWhatThereIs) {
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(70)));
  Ledger successor(region());
  const auto index = successor.begin_freeze(kGroup, 44, handles(70));
  ASSERT_TRUE(index);
  for (const LedgerRecord& entry : listed()) EXPECT_EQ(entry.freezes, 2u);
  EXPECT_EQ(listed().size(), 2u);
  successor.end_thaw(*index);
  successor.end_thaw(*index);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, RecoveryMayClearEntriesWhileItVisitsAllOfThem) {
  ASSERT_TRUE(ledger().begin_freeze(kGroup, 33, handles(150)));
  Ledger recovery(region());
  int visited = 0;
  recovery.for_each([&](uint32_t index, const LedgerRecord&) {
    ++visited;
    recovery.clear(index);
  });
  EXPECT_EQ(visited, 3);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerTest, NonsenseInAnEntryNeverClaimsMoreChannelsThanItHas) {
  LedgerRecord nonsense{.pid = 9, .freezes = 1, .channel_count = 0xFFFFFFFF};
  write_record(region().ledger[77], nonsense);
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_EQ(listed()[0].channel_count, kLedgerChannels);
}

}  // namespace
}  // namespace gpushare
