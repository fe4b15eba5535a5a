// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/recovery.h"

#include <gtest/gtest.h>

#include <memory>

#include "shmctl/plane/ledger.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare {
namespace {

using test::FakeGpu;

constexpr LedgerKey kA{.pid = 1, .start_ticks = 1001, .gpu = 0, .client = 0xA, .group = 1};
constexpr LedgerKey kB{.pid = 2, .start_ticks = 1002, .gpu = 1, .client = 0xB, .group = 1};

class RecoveryTest : public ::testing::Test {
 protected:
  // As an agent does it, and then it dies.
  void freeze(const LedgerKey& key, std::vector<uint32_t> channels) {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.begin_freeze(key, 3, channels));
    std::vector<ChannelRef> refs;
    for (const uint32_t channel : channels) refs.push_back({key.client, channel});
    ASSERT_TRUE(gpu_.freeze(key.gpu, refs));
  }
  void change_slice(const LedgerKey& key) {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.note_slice(key, 3, 2048));
    ASSERT_TRUE(gpu_.set_slice({{key.pid, key.start_ticks}, 3, key.client, key.group}, Micros(1)));
  }
  // A program with one channel, whose number is its pid.
  void freeze_unlisted(pid_t pid, int times) {
    const auto channel = static_cast<uint32_t>(pid);
    DriverEvent event;
    event.what = ChannelCreated{.client = 0xA, .parent = 1, .channel = channel};
    gpu_.attachable[pid] = {event};
    const ChannelRef ref{0xA, channel};
    for (int i = 0; i < times; ++i) ASSERT_TRUE(gpu_.freeze(0, std::span(&ref, 1)));
  }
  RecoveryReport recover() { return gpushare::recover(gpu_, *region_, processes_); }
  std::size_t entries() {
    std::size_t n = 0;
    for_each_entry(*region_, [&](uint32_t, const LedgerRecord&) { ++n; });
    return n;
  }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  FakeGpu gpu_{2};
  test::FakeProcReader processes_;
};

TEST_F(RecoveryTest, ThawsAndRestoresEverythingListed) {
  freeze(kA, {1, 2, 3});
  freeze(kB, {1, 2});
  change_slice(kA);
  const RecoveryReport report = recover();
  EXPECT_EQ(report.thawed, (std::vector<ProcessId>{{1, 1001}, {2, 1002}}));
  EXPECT_EQ(report.slices_restored, 1u);
  EXPECT_TRUE(report.errors.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(0xA, 1), Micros(2048));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(RecoveryTest, ThawsInOneCallPerGpu) {
  LedgerKey other = kA;
  other.pid = 3;
  other.start_ticks = 1003;
  other.client = 0xC;
  freeze(kA, {1, 2, 3});
  freeze(other, {1});
  freeze(kB, {1});
  gpu_.calls.clear();
  recover();
  EXPECT_EQ(gpu_.count(FakeGpu::Call::Kind::kThaw), 2u);
}

TEST_F(RecoveryTest, LetsAStoppedProcessGoOn) {
  const LedgerKey process{.pid = 3, .start_ticks = 1003, .gpu = 0};
  {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.begin_freeze(process, -1, {}));
  }
  const ProcessId id{3, 1003};
  ASSERT_TRUE(gpu_.stop(id));
  freeze(kA, {1, 2});
  const RecoveryReport report = recover();
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(report.thawed, (std::vector<ProcessId>{{1, 1001}, id}));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(RecoveryTest, DoneTwiceDoesNothingMore) {
  freeze(kA, {1});
  recover();
  gpu_.calls.clear();
  const RecoveryReport again = recover();
  EXPECT_TRUE(again.thawed.empty());
  EXPECT_TRUE(gpu_.calls.empty());
}

TEST_F(RecoveryTest, ThawsAsOftenAsFrozen) {
  freeze(kA, {1, 2});
  freeze(kA, {3});
  recover();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(RecoveryTest, NeverTouchesANewBearerOfThePid) {
  freeze(kA, {1});
  change_slice(kA);
  processes_.add({kA.pid, kA.start_ticks + 1}, "other");
  gpu_.calls.clear();
  const RecoveryReport report = recover();
  EXPECT_EQ(report.gone, 1u);
  EXPECT_TRUE(report.thawed.empty());
  EXPECT_EQ(gpu_.count(FakeGpu::Call::Kind::kSetSlice), 0u);
  EXPECT_EQ(gpu_.frozen_channels(), 0) << "a child of the old one may hold them";
  EXPECT_EQ(entries(), 0u);
}

TEST_F(RecoveryTest, AProcessThatCannotBeReadNowIsNotTakenForDead) {
  freeze(kA, {1, 2});
  change_slice(kA);
  processes_.unreadable.insert(kA.pid);
  const RecoveryReport report = recover();
  EXPECT_EQ(report.gone, 0u);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(0xA, 1), Micros(2048));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(RecoveryTest, WhatCannotBeUndoneOfSuchAProcessStaysListed) {
  freeze(kA, {1, 2});
  change_slice(kA);
  processes_.unreadable.insert(kA.pid);
  gpu_.fault = [](const FakeGpu::Call&) -> Result<> {
    return make_error(std::errc::too_many_files_open, "ask the driver");
  };
  EXPECT_EQ(recover().errors.size(), 2u);
  EXPECT_EQ(entries(), 1u);
  gpu_.fault = nullptr;
  recover();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(entries(), 0u);
}

TEST_F(RecoveryTest, OfSomeGroupsAloneLeavesTheOthers) {
  freeze(kA, {1});
  freeze(kB, {1});
  Ledger ledger(*region_);
  const std::set<LedgerKey> only{kB};
  Recovery recovery(ledger, processes_, &only);
  recovery.carry_out(gpu_);
  (void)recovery.finish(ledger, processes_);
  EXPECT_EQ(gpu_.freezes({kA.client, 1}), 1);
  EXPECT_EQ(gpu_.freezes({kB.client, 1}), 0);
  EXPECT_EQ(ledger.groups(), std::vector{kA});
}

TEST_F(RecoveryTest, OneThatResistsDoesNotKeepTheOthersFrozen) {
  LedgerKey other = kA;
  other.pid = 3;
  other.start_ticks = 1003;
  other.client = 0xC;
  freeze(kA, {1});
  freeze(other, {1});
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    for (const ChannelRef& channel : call.channels)
      if (channel.client == kA.client) return make_error(std::errc::io_error, "thaw");
    return {};
  };
  const RecoveryReport report = recover();
  EXPECT_EQ(report.thawed, (std::vector<ProcessId>{{3, 1003}}));
  EXPECT_EQ(report.errors.size(), 1u);
  EXPECT_EQ(entries(), 1u) << "what is not undone stays listed";
  gpu_.fault = nullptr;
  EXPECT_EQ(recover().thawed, (std::vector<ProcessId>{{1, 1001}}));
}

TEST_F(RecoveryTest, AnIntendedFreezeThatNeverHappenedIsHarmless) {
  Ledger ledger(*region_);
  const std::vector<uint32_t> channels{1, 2};
  ASSERT_TRUE(ledger.begin_freeze(kA, 3, channels));
  EXPECT_TRUE(recover().errors.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(RecoveryTest, WithoutALedgerEverythingIsThawedAsOftenAsItMayBeFrozen) {
  for (const pid_t pid : {1, 2}) freeze_unlisted(pid, /*times=*/pid);
  gpu_.attachable[3] = {};  // it has the driver open, and nothing on a GPU
  const auto all = find_all_programs(gpu_);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->channels.size(), 2u);
  EXPECT_EQ(all->users.size(), 3u);
  EXPECT_TRUE(all->is_complete);
  EXPECT_TRUE(thaw_all(gpu_, 0, *all));
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(RecoveryTest, WithoutALedgerARefusalIsToldAndKeepsNobodyElseFrozen) {
  for (const pid_t pid : {1, 2}) freeze_unlisted(pid, /*times=*/1);
  std::errc refusal = std::errc::io_error;
  gpu_.fault = [&](const FakeGpu::Call& call) -> Result<> {
    if (call.channels.front().channel == 1) return make_error(refusal, "thaw");
    return {};
  };
  const auto all = find_all_programs(gpu_);
  EXPECT_EQ(thaw_all(gpu_, 0, *all).error().code, refusal);
  EXPECT_EQ(gpu_.frozen_channels(), 1) << "that of the first program";
  refusal = std::errc::no_such_process;
  EXPECT_TRUE(thaw_all(gpu_, 0, *all)) << "it has ended";
}

}  // namespace
}  // namespace gpushare
