// SPDX-License-Identifier: Apache-2.0
// The supervisor's hold on slots; this process is the agent and the programs.
#include "shmctl/shim/slot_keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmctl/base/pidfd.h"
#include "shmctl/program/wait.h"
#include "shmctl/shim/credit.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

uint64_t now_ns() {
  return static_cast<uint64_t>(MonotonicClock().now().time_since_epoch().count());
}

class SlotKeeperTest : public ::testing::Test {
 protected:
  SlotKeeperTest() { SlotKeeper::report_to(keeper_->agents_end()); }
  ~SlotKeeperTest() override { SlotKeeper::report_to(-1); }

  // A new slot, of this process or another, that is closed and has a beat of just now.
  ShimSlot& give(pid_t pid = ::getpid(), uint64_t start_ticks = 1) {
    Fd file(::memfd_create("slot", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), kShimSlotBytes), 0);
    auto* slot = static_cast<ShimSlot*>(
        ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    slot->beat_ns = now_ns();
    slot->gate = 1;
    close_credit(*slot);
    const Fd owner = open_pidfd(pid, 0, "test").value();
    EXPECT_TRUE(SlotKeeper::report({pid, start_ticks}, file, owner));
    return *slot;  // stays mapped: a test has a handful
  }

  const std::unique_ptr<SlotKeeper> keeper_ = SlotKeeper::start().value();
};

TEST_F(SlotKeeperTest, ADeathFreesAllAtOnceAlsoWhatCameLast) {
  ShimSlot& first = give();
  ASSERT_TRUE(eventually([&] { return keeper_->size() == 1; }));
  ShimSlot& last = give(::getpid(), 2);
  keeper_->free_all();
  for (ShimSlot* slot : {&first, &last}) {
    EXPECT_TRUE(is_credit_open(*slot));
    EXPECT_EQ(slot->beat_ns, 0U) << "who waits at the gate finds the agent dead";
  }
}

TEST_F(SlotKeeperTest, AHungAgentIsNoticedByItsBeatAndALiveOneIsLeftAlone) {
  ShimSlot& slot = give();
  ASSERT_TRUE(eventually([&] { return keeper_->size() == 1; }));
  slot.beat_ns = now_ns() + 60'000'000'000;  // however late this thread runs
  std::this_thread::sleep_for(5 * SlotKeeper::kLook);
  ASSERT_FALSE(is_credit_open(slot));
  slot.beat_ns = now_ns() - 2 * kShimBeatTimeoutNs;
  EXPECT_TRUE(eventually([&] { return is_credit_open(slot); }));
}

TEST_F(SlotKeeperTest, TheSlotsOfOneThatEndedAreDropped) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  give(child, 7);
  give(child, 7);
  ASSERT_TRUE(eventually([&] { return keeper_->size() == 1; })) << "the later one counts";
  ::kill(child, SIGKILL);
  EXPECT_TRUE(eventually([&] { return keeper_->size() == 0; }));
  ::waitpid(child, nullptr, 0);
}

// What it writes over its own page is its own affair.
TEST_F(SlotKeeperTest, ALiarFreesOrHoldsItselfOnly) {
  ShimSlot& liar = give();
  ShimSlot& other = give(::getpid(), 2);
  ASSERT_TRUE(eventually([&] { return keeper_->size() == 2; }));
  liar.beat_ns = UINT64_MAX;
  liar.credit.issued = 0x80000000;
  liar.credit.word = 12345;
  keeper_->free_all();
  EXPECT_TRUE(is_credit_open(other));
}

}  // namespace
}  // namespace gpushare
