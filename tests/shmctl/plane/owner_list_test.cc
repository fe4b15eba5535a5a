// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/owner_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

using Owner = OwnerList::Owner;
constexpr uint64_t kLoad = 7;

Owner owner(pid_t pid, uint32_t clients = 1) {
  Owner one;
  one.process = {pid, 100};
  one.uid = 1000;
  one.run = 3;
  one.tenant = "lab";
  one.command = "python3";
  one.command_line = "python3 train.py";
  one.job_arrived_ns = 5;
  one.job_service_ns = 6;
  one.clients.resize(clients);
  std::iota(one.clients.begin(), one.clients.end(), 0xC1D00000 + 1000 * static_cast<uint32_t>(pid));
  return one;
}

Owner sorted(Owner one) {
  std::ranges::sort(one.clients);
  return one;
}

class OwnerListTest : public ::testing::Test {
 protected:
  // As the next agent reads it.
  Owner read(pid_t pid) {
    const OwnerList next(plane_.region(), kLoad);
    const Owner* const found = next.find({pid, 100});
    return found == nullptr ? Owner{} : sorted(*found);
  }
  std::size_t entries() {
    return static_cast<std::size_t>(
        std::ranges::count_if(plane_.region().owner_entries, [](const Slot<OwnerRecord>& slot) {
          return is_written(slot) && read_record(slot)->pid != 0;
        }));
  }

  TempPlane plane_;
  OwnerList list_{plane_.region(), kLoad};
};

TEST_F(OwnerListTest, WhatWasPutIsThereForTheNext) {
  EXPECT_TRUE(list_.put(owner(10)));
  EXPECT_TRUE(list_.put(owner(11, 40)));
  EXPECT_TRUE(list_.put(owner(12)));
  list_.erase({12, 100});
  list_.erase({13, 100});  // it is not there
  EXPECT_EQ(read(10), owner(10));
  EXPECT_EQ(read(11), owner(11, 40));
  EXPECT_EQ(read(12), Owner{});
  EXPECT_EQ(entries(), 4u);
}

TEST_F(OwnerListTest, FewerClientsGiveTheirRoomBack) {
  ASSERT_TRUE(list_.put(owner(10, 64)));
  EXPECT_EQ(entries(), 4u);
  ASSERT_TRUE(list_.put(owner(10, 17)));
  EXPECT_LE(entries(), 2u);
  EXPECT_EQ(read(10), owner(10, 17));
  ASSERT_TRUE(list_.put(owner(10, 0)));
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(read(10), owner(10, 0));
}

TEST_F(OwnerListTest, TheNextOneGoesOnWhereItLies) {
  ASSERT_TRUE(list_.put(owner(10, 64)));
  OwnerList next(plane_.region(), kLoad);
  EXPECT_TRUE(next.put(owner(10, 20)));
  EXPECT_TRUE(next.put(owner(11)));
  EXPECT_EQ(read(10), owner(10, 20));
  EXPECT_EQ(read(11), owner(11));
  next.erase({10, 100});
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OwnerListTest, TextsAreCutToWhatThereIsRoomFor) {
  Owner one = owner(10);
  one.command = std::string(40, 'c');
  one.command_line = std::string(500, 'l');
  ASSERT_TRUE(list_.put(one));
  EXPECT_EQ(read(10).command, std::string(15, 'c'));
  EXPECT_EQ(read(10).command_line, std::string(127, 'l'));
}

TEST_F(OwnerListTest, OneProcessHasNoMoreOfItThanItsPart) {
  EXPECT_FALSE(list_.put(owner(10, OwnerList::kMostClients + 1)));
  EXPECT_EQ(read(10).clients.size(), OwnerList::kMostClients);
  EXPECT_EQ(entries(), OwnerList::kMostClients / kOwnerClients);
}

// Who fills it drives out his own.
TEST_F(OwnerListTest, WhenItIsFullTheUserWhoHasMostGivesWay) {
  constexpr uint32_t kAll = kMaxOwners / 4;
  for (uint32_t i = 0; i < kAll; ++i) ASSERT_TRUE(list_.put(owner(static_cast<pid_t>(10 + i), 64)));
  EXPECT_FALSE(list_.put(owner(5))) << "of the same user";
  EXPECT_EQ(list_.find({5, 100}), nullptr);
  Owner other = owner(5, 20);
  other.uid = 1001;
  EXPECT_TRUE(list_.put(other));
  EXPECT_EQ(read(5), other);
  EXPECT_EQ(list_.find({10, 100}), nullptr);
  EXPECT_EQ(read(11), owner(11, 64));
  EXPECT_TRUE(list_.put(owner(6))) << "two places are free";
  EXPECT_FALSE(list_.put(owner(7, 20))) << "there is room for a part of it";
  EXPECT_EQ(read(7).clients.size(), 16u);
  list_.erase({6, 100});
  EXPECT_TRUE(list_.put(owner(7, 20)));
  EXPECT_EQ(read(7), owner(7, 20));
}

// What the process that asks for more has counts, too.
TEST_F(OwnerListTest, TheUserWhoHasMostDrivesNobodyOut) {
  ASSERT_TRUE(list_.put(owner(10, 63 * kOwnerClients)));
  for (uint32_t i = 63; i < kMaxOwners; ++i) {
    Owner other = owner(static_cast<pid_t>(100 + i));
    other.uid = 5000 + i;
    ASSERT_TRUE(list_.put(other));
  }
  EXPECT_FALSE(list_.put(owner(10, 64 * kOwnerClients)));
  EXPECT_EQ(entries(), kMaxOwners);
  EXPECT_EQ(list_.processes().size(), kMaxOwners - 62);
}

TEST_F(OwnerListTest, NothingOfADriverThatWasUnloadedIsBelieved) {
  ASSERT_TRUE(list_.put(owner(10, 20)));
  const OwnerList next(plane_.region(), kLoad + 1);
  EXPECT_TRUE(next.processes().empty());
  EXPECT_EQ(entries(), 0u);
  EXPECT_TRUE(OwnerList(plane_.region(), kLoad + 1).processes().empty());
}

TEST_F(OwnerListTest, NothingOfADriverThatIsNotKnownIsBelieved) {
  OwnerList unknown(plane_.region(), 0);
  ASSERT_TRUE(unknown.put(owner(10)));
  EXPECT_TRUE(OwnerList(plane_.region(), 0).processes().empty());
}

TEST_F(OwnerListTest, WhatIsForgottenIsTheTenantAndTheJob) {
  ASSERT_TRUE(list_.put(owner(10, 20)));
  OwnerList::forget(plane_.region());
  Owner left = owner(10, 20);
  left.tenant.clear();
  left.run = 0;
  left.job_arrived_ns = left.job_service_ns = 0;
  EXPECT_EQ(read(10), left);
}

// Between two steps the writer stands still, which looks as if it had died there.
TEST_F(OwnerListTest, ADeathAtAnyInstructionLosesNoClientThatStays) {
  ASSERT_TRUE(list_.put(owner(10, 20)));
  Owner changed = owner(10, 20);
  changed.tenant = "other";
  Owner earlier = owner(10, 40);  // one has come with a lower name than all others
  earlier.clients.insert(earlier.clients.begin(), 7);
  const auto has_all_of = [](const Owner& one, const Owner& before) {
    return std::ranges::all_of(before.clients, [&](uint32_t client) {
      return std::ranges::find(one.clients, client) != one.clients.end();
    });
  };
  SteppedChild writer(Stride::kInstruction, [&] {
    (void)list_.put(changed);
    (void)list_.put(earlier);
    (void)list_.put(owner(10, 17));
    (void)list_.put(owner(11, 20));
  });
  if (!writer.is_traced()) GTEST_SKIP() << "this build or machine cannot step single instructions";
  while (writer.step()) {
    if (writer.steps() % 41 != 0) continue;  // reading all of it takes as long as 500 steps
    const Owner first = read(10), second = read(11);
    EXPECT_TRUE(first.tenant == "lab" || first.tenant == "other");
    EXPECT_TRUE(has_all_of(first, owner(10, 17)));
    EXPECT_TRUE(second == Owner{} || (second.tenant == "lab" && has_all_of(owner(11, 20), second)));
    if (HasFailure()) return;
  }
  EXPECT_EQ(read(10), owner(10, 17));
  EXPECT_EQ(read(11), owner(11, 20));
}

// It is taken over, and nothing of it has changed.
TEST_F(OwnerListTest, NothingIsWrittenWhenItIsTakenOverAsItIs) {
  ASSERT_TRUE(list_.put(owner(10, 40)));
  OwnerList next(plane_.region(), kLoad);
  const auto versions = [&] {
    uint64_t sum = 0;
    for (const auto& slot : plane_.region().owner_entries) sum += slot.version.load();
    return sum;
  };
  const uint64_t before = versions();
  EXPECT_TRUE(next.put(owner(10, 40)));
  EXPECT_EQ(versions(), before);
}

}  // namespace
}  // namespace gpushare
