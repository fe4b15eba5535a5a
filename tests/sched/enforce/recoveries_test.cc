// SPDX-License-Identifier: Apache-2.0
// Recovery of all GPUs at once: one that hangs holds up nobody else's, and the ledger loses
// nothing. Run with the thread sanitizer, too.
#include "sched/enforce/recoveries.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "shmctl/base/last_threads.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/program/wait.h"
#include "tests/sched/enforce/hanging_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare {
namespace {

using test::HangingGpu;
using Writer = Recoveries::Writer;

constexpr LedgerKey kFirst{.pid = 1, .start_ticks = 1001, .gpu = 0, .client = 0xA, .group = 1};
constexpr LedgerKey kOther{.pid = 2, .start_ticks = 1002, .gpu = 1, .client = 0xB, .group = 1};
constexpr LedgerKey kStopped{.pid = 3, .start_ticks = 1003, .gpu = 0};
constexpr uint32_t kChannel = 7;

class RecoveriesTest : public ::testing::Test {
 protected:
  ~RecoveriesTest() override { gpu_->set_hang(0, false); }

  void freeze(const LedgerKey& key) {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.begin_freeze(key, 3, std::span(&kChannel, 1)));
    land_freeze(key);
  }
  void land_freeze(const LedgerKey& key) {
    const ChannelRef channel{key.client, kChannel};
    ASSERT_TRUE(gpu_->freeze(key.gpu, std::span(&channel, 1)));
  }
  bool is_frozen(const LedgerKey& key) const {
    return gpu_->freezes_now({key.client, kChannel}) > 0;
  }
  bool is_listed(const LedgerKey& key) const { return Ledger(*region_).freezes(key) > 0; }
  // Until nothing is under way but what hangs.
  std::vector<Recoveries::Over> collect_until_under_way(std::size_t left) {
    std::vector<Recoveries::Over> all;
    EXPECT_TRUE(eventually([&] {
      for (Recoveries::Over& over : recoveries_.collect()) all.push_back(std::move(over));
      return recoveries_.under_way().size() <= left;
    }));
    return all;
  }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  std::shared_ptr<HangingGpu> gpu_ = std::make_shared<HangingGpu>(2);
  test::FakeProcReader processes_;
  MonotonicClock clock_;
  std::vector<ProcessId> resumed_;
  Recoveries recoveries_{*region_, processes_, clock_,
                         [this](const ProcessId& process) -> Result<> {
                           resumed_.push_back(process);
                           return {};
                         },
                         [] {}};
};

TEST_F(RecoveriesTest, AGpuThatHangsKeepsNobodyFrozenOnTheOthersAndIsUndoneWhenItAnswers) {
  freeze(kFirst);
  freeze(kOther);
  gpu_->set_hang(0, true);
  recoveries_.begin(gpu_, Writer::kHasEnded);
  collect_until_under_way(1);
  EXPECT_FALSE(is_frozen(kOther));
  EXPECT_FALSE(is_listed(kOther));
  EXPECT_TRUE(is_listed(kFirst));
  EXPECT_TRUE(recoveries_.under_way().contains(0));
  gpu_->set_hang(0, false);
  const auto over = collect_until_under_way(0);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].gpu, 0u);
  EXPECT_EQ(over[0].report.thawed, (std::vector<ProcessId>{{1, 1001}}));
  EXPECT_FALSE(is_frozen(kFirst));
  EXPECT_FALSE(is_listed(kFirst));
}

// A thread of the agent was in the driver when the agent was killed.
TEST_F(RecoveriesTest, AFreezeThatLandsWhileTheAgentDiesIsListedUntilItIsUndone) {
  freeze(kFirst);
  recoveries_.begin(gpu_, Writer::kDies);
  collect_until_under_way(0);
  EXPECT_FALSE(is_frozen(kFirst)) << "at once";
  EXPECT_TRUE(is_listed(kFirst));
  land_freeze(kFirst);
  recoveries_.begin(gpu_, Writer::kHasEnded);
  collect_until_under_way(0);
  EXPECT_FALSE(is_frozen(kFirst));
  EXPECT_FALSE(is_listed(kFirst));
}

// By which an agent that is started at once leaves that GPU alone.
TEST_F(RecoveriesTest, AsSoonAsAGpuIsAskedItIsSeenByTheNameOfTheThread) {
  const ProcessId self{::getpid(), 0};
  freeze(kFirst);
  for (int i = 0; i < 50 && !HasFailure(); ++i) {
    gpu_->set_hang(0, true);
    recoveries_.begin(gpu_, Writer::kDies);
    EXPECT_TRUE(may_ask_gpu(self, 0)) << i;
    EXPECT_FALSE(may_ask_gpu(self, 1));
    recoveries_.call_off();
    gpu_->set_hang(0, false);
    ASSERT_TRUE(eventually([&] { return !may_ask_gpu(self, 0); }));
  }
}

TEST_F(RecoveriesTest, WhatIsCalledOffTouchesNeitherTheLedgerNorWhatTheNextAgentSets) {
  freeze(kFirst);
  const GroupRef group{{kFirst.pid, kFirst.start_ticks}, 3, kFirst.client, kFirst.group};
  {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.note_slice(kFirst, 3, 2048));
  }
  gpu_->set_hang(0, true);
  recoveries_.begin(gpu_, Writer::kHasEnded);
  gpu_->await_waiting();
  recoveries_.call_off();
  EXPECT_TRUE(recoveries_.under_way().empty());
  ASSERT_TRUE(gpu_->set_slice(group, Micros(500)));
  gpu_->set_hang(0, false);
  ASSERT_TRUE(eventually([&] { return gpu_.use_count() == 1; })) << "its thread has ended";
  EXPECT_EQ(gpu_->slice_now(kFirst.client, kFirst.group), Micros(500));
  EXPECT_TRUE(is_listed(kFirst));
}

TEST_F(RecoveriesTest, WhoIsStoppedGoesOnWithoutADriver) {
  freeze(kFirst);
  {
    Ledger ledger(*region_);
    ASSERT_TRUE(ledger.begin_freeze(kStopped, -1, {}));
  }
  recoveries_.begin(nullptr, Writer::kDies);
  EXPECT_EQ(resumed_, (std::vector<ProcessId>{{3, 1003}}));
  EXPECT_TRUE(is_listed(kStopped));
  const RecoveryReport report = recoveries_.begin(nullptr, Writer::kHasEnded);
  EXPECT_EQ(report.thawed, (std::vector<ProcessId>{{3, 1003}}));
  EXPECT_FALSE(is_listed(kStopped));
  EXPECT_TRUE(is_listed(kFirst));
}

}  // namespace
}  // namespace gpushare
