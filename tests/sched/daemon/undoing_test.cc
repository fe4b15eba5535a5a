// SPDX-License-Identifier: Apache-2.0
// What an agent has left is undone as far as the driver answers, and the rest when it does.
#include "sched/daemon/undoing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>

#include "shmctl/plane/ledger.h"
#include "shmctl/program/wait.h"
#include "tests/sched/enforce/connection.h"
#include "tests/sched/enforce/hanging_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare {
namespace {

using test::Connection;
using test::HangingGpu;

class UndoingTest : public ::testing::Test {
 protected:
  UndoingTest() {
    for (const uint32_t gpu : {0U, 1U}) {
      Ledger ledger(*region_);
      const ChannelRef channel{0xA + gpu, 7};
      EXPECT_TRUE(ledger.begin_freeze(key(gpu), 3, std::span(&channel.channel, 1)));
      EXPECT_TRUE(driver_->freeze(gpu, std::span(&channel, 1)));
    }
  }
  ~UndoingTest() override {
    driver_->set_hang(0, false);
    may_open_->store(true);
    may_open_->notify_all();
  }
  static LedgerKey key(uint32_t gpu) {
    return {.pid = static_cast<int>(gpu) + 1,
            .start_ticks = 1001 + gpu,
            .gpu = gpu,
            .client = 0xA + gpu,
            .group = 1};
  }
  bool is_listed(uint32_t gpu) const { return Ledger(*region_).freezes(key(gpu)) > 0; }
  bool comes_to(const std::function<bool()>& is_so) {
    return eventually([&] {
      undoing_.advance();
      return is_so();
    });
  }
  bool comes_to_its_end() {
    return comes_to([&] { return undoing_.is_undone(); });
  }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  const std::shared_ptr<HangingGpu> driver_ = std::make_shared<HangingGpu>(2);
  // Of the threads, which may outlive the test.
  const std::shared_ptr<std::atomic<bool>> may_open_ = std::make_shared<std::atomic<bool>>(true);
  const std::shared_ptr<std::atomic<int>> broken_ = std::make_shared<std::atomic<int>>(0);
  std::set<uint32_t> taken_;  // GPUs whose driver one that has died may still be asking
  int taken_times_ = 0;       // how often it is said of any GPU from now on
  test::FakeProcReader processes_;
  MonotonicClock clock_;
  Undoing undoing_{*region_,
                   processes_,
                   clock_,
                   {.open = [driver = driver_, may_open = may_open_,
                             broken = broken_]() -> Result<std::unique_ptr<Gpu>> {
                      may_open->wait(false);
                      return std::make_unique<Connection>(driver, broken->fetch_sub(1) > 0);
                    },
                    .resume = [](const ProcessId&) { return Result<>(); },
                    .is_free =
                        [this](uint32_t gpu) {
                          return taken_.contains(gpu) || taken_times_-- > 0
                                     ? make_error(std::errc::device_or_resource_busy,
                                                  "wait for an earlier call")
                                     : Result<>();
                        }}};
};

// A freeze that takes effect after the thaw would be listed nowhere.
TEST_F(UndoingTest, AGpuOnWhichACallOfTheDeadMayBeUnderWayIsLeftAloneUntilItIsOver) {
  taken_.insert(0);
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(comes_to([&] { return !is_listed(1); }));
  EXPECT_TRUE(is_listed(0));
  EXPECT_EQ(driver_->freezes_now({0xA, 7}), 1) << "nothing was asked of it";
  taken_.clear();
  EXPECT_TRUE(comes_to_its_end()) << "by itself";
  EXPECT_EQ(driver_->frozen_now(), 0);
}

TEST_F(UndoingTest, ACallOfTheDeadThatIsOverSoonIsWaitedFor) {
  taken_times_ = 4;
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(undoing_.is_undone());
  EXPECT_TRUE(undoing_.take_report().errors.empty());
}

TEST_F(UndoingTest, AGpuThatHangsIsWaitedForOnceAndUndoneWhenItAnswers) {
  driver_->set_hang(0, true);
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(comes_to([&] { return !is_listed(1); }));
  EXPECT_EQ(undoing_.take_report().thawed, (std::vector<ProcessId>{{2, 1002}}));
  EXPECT_TRUE(comes_to([&] { return undoing_.next() == Time::max(); }))
      << "it is not asked again, and nobody waits";
  EXPECT_TRUE(is_listed(0));
  driver_->set_hang(0, false);
  EXPECT_TRUE(comes_to_its_end());
  EXPECT_EQ(driver_->frozen_now(), 0);
  EXPECT_EQ(undoing_.take_report().thawed, (std::vector<ProcessId>{{1, 1001}}));
}

TEST_F(UndoingTest, ADriverThatHangsAtItsOpeningIsUsedAsSoonAsItIsOpen) {
  may_open_->store(false);
  undoing_.look_for_gpu();
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(is_listed(0) && is_listed(1));
  may_open_->store(true);
  may_open_->notify_all();
  EXPECT_TRUE(comes_to_its_end());
  EXPECT_EQ(driver_->frozen_now(), 0);
}

TEST_F(UndoingTest, ABrokenConnectionIsReplaced) {
  broken_->store(1);
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(comes_to_its_end());
  EXPECT_EQ(driver_->frozen_now(), 0);
  EXPECT_TRUE(undoing_.take_report().errors.empty()) << "of the last try";
}

TEST_F(UndoingTest, WhatFailsAgainAndAgainIsTriedWithPauses) {
  broken_->store(1000);
  undoing_.begin(Undoing::Writer::kHasEnded);
  undoing_.wait();
  EXPECT_TRUE(comes_to([&] { return !undoing_.take_report().errors.empty(); }));
  EXPECT_FALSE(undoing_.is_undone());
  broken_->store(0);
  EXPECT_TRUE(comes_to_its_end());
}

// A first try, while a thread of the agent may be in the driver, and the second one when it cannot.
TEST_F(UndoingTest, NothingIsClearedBeforeTheAgentHasEnded) {
  undoing_.begin(Undoing::Writer::kDies);
  undoing_.wait();
  EXPECT_TRUE(comes_to([&] { return driver_->frozen_now() == 0; }));
  EXPECT_TRUE(is_listed(0) && is_listed(1));
  const ChannelRef late{0xA, 7};
  ASSERT_TRUE(driver_->freeze(0, std::span(&late, 1)));
  undoing_.begin(Undoing::Writer::kHasEnded);
  EXPECT_TRUE(comes_to_its_end());
  EXPECT_EQ(driver_->frozen_now(), 0);
  EXPECT_EQ(undoing_.take_report().thawed.size(), 2u) << "each is told once";
}

// Begun while the agent died, it is over after that: what it thawed may have been frozen since.
TEST_F(UndoingTest, ATryThatHungWhileTheAgentDiedIsMadeAgain) {
  driver_->set_hang(0, true);
  undoing_.begin(Undoing::Writer::kDies);
  EXPECT_TRUE(comes_to([&] { return driver_->is_anyone_waiting(); }));
  undoing_.begin(Undoing::Writer::kHasEnded);
  driver_->set_hang(0, false);
  EXPECT_TRUE(comes_to_its_end());
  EXPECT_EQ(driver_->frozen_now(), 0);
}

}  // namespace
}  // namespace gpushare
