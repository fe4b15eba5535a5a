// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/wakes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shmctl/base/fd.h"
#include "shmctl/program/wait.h"
#include "tests/support/sanitized.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

const ProcessId kOne{100, 1}, kTwo{200, 2};

class WakesTest : public ::testing::Test {
 protected:
  bool is_readable() const {
    pollfd file{.fd = wakes_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&file, 1, 0) == 1;
  }
  static void wake(int descriptor) { ASSERT_EQ(::eventfd_write(descriptor, 1), 0); }

  Wakes wakes_;
  Time now_{1000s};
};

TEST_F(WakesTest, TellsWhoHasWokenUsOnceHoweverOften) {
  const int one = wakes_.add(kOne), two = wakes_.add(kTwo);
  EXPECT_FALSE(is_readable());
  EXPECT_TRUE(wakes_.take(now_).empty());
  wake(two);
  wake(one);
  wake(one);
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(wakes_.take(now_), (std::vector<ProcessId>{kOne, kTwo}));
  EXPECT_FALSE(is_readable());
  EXPECT_TRUE(wakes_.take(now_).empty());
}

// The process's own copy keeps the eventfd alive.
TEST_F(WakesTest, WhoIsRemovedIsHeardNoMore) {
  const Fd copy(::dup(wakes_.add(kOne)));
  wakes_.remove(kOne);
  wake(copy.get());
  EXPECT_FALSE(is_readable());
  EXPECT_TRUE(wakes_.take(now_).empty());
  EXPECT_FALSE(wakes_.is_unheard(kOne));
}

// The eventfd is one file with one set of flags, and the process may read it as well as we.
TEST_F(WakesTest, WhoTakesItsWakeBackHoldsUsUpForNoTime) {
  const Fd theirs(::dup(wakes_.add(kOne)));
  ASSERT_EQ(::fcntl(theirs.get(), F_SETFL, 0), 0) << "from now on a read of nothing waits";
  std::atomic<bool> is_over = false;
  // About a second, where two threads run at a time; much longer under a sanitizer, and where the
  // two have one processor.
  constexpr int kRounds = GS_IS_SANITIZED ? 100'000 : 1'000'000;
  std::atomic<int> rounds = 0;
  std::thread process([&] {
    while (!is_over) {
      const int seen = rounds;
      wake(theirs.get());
      uint64_t count = 0;
      iovec part{.iov_base = &count, .iov_len = sizeof count};
      (void)::preadv2(theirs.get(), &part, 1, -1, RWF_NOWAIT);
      while (rounds == seen && !is_over) {  // whoever waits now waits for ever
      }
    }
    wake(theirs.get());
  });
  std::thread agent([&] {
    for (; rounds < kRounds && !is_over; ++rounds) wakes_.take(now_ += 1ms);
  });
  EXPECT_TRUE(eventually([&] { return rounds == kRounds; }, 10min)) << rounds;
  is_over = true;
  process.join();
  agent.join();
}

TEST_F(WakesTest, WhoGetsANewSlotIsHeardThroughTheNewOneOnly) {
  const Fd old(::dup(wakes_.add(kOne)));
  const int current = wakes_.add(kOne);
  wake(old.get());
  EXPECT_TRUE(wakes_.take(now_).empty());
  wake(current);
  EXPECT_EQ(wakes_.take(now_), std::vector<ProcessId>{kOne});
}

TEST_F(WakesTest, WhoWakesUsTooOftenIsNotHeardForAWhile) {
  const int one = wakes_.add(kOne), two = wakes_.add(kTwo);
  for (uint32_t i = 0; i <= Wakes::kMostPerSecond; ++i) {
    EXPECT_FALSE(wakes_.is_unheard(kOne)) << i;
    wake(one);
    ASSERT_EQ(wakes_.take(now_).size(), 1u) << i;
    now_ += 100us;
  }
  EXPECT_TRUE(wakes_.is_unheard(kOne));
  wake(one);
  EXPECT_FALSE(is_readable()) << "it costs us nothing";
  wake(two);
  EXPECT_EQ(wakes_.take(now_), std::vector<ProcessId>{kTwo}) << "others are heard";
  now_ += Wakes::kUnheard;
  EXPECT_EQ(wakes_.take(now_), std::vector<ProcessId>{kOne}) << "what it said last is not lost";
  EXPECT_FALSE(wakes_.is_unheard(kOne));
}

TEST_F(WakesTest, WhoWakesUsOftenButNotTooOftenStaysHeard) {
  const int one = wakes_.add(kOne);
  for (uint32_t i = 0; i < 3 * Wakes::kMostPerSecond; ++i) {
    wake(one);
    now_ += 501us;
    ASSERT_EQ(wakes_.take(now_).size(), 1u) << i;
  }
  EXPECT_FALSE(wakes_.is_unheard(kOne));
}

}  // namespace
}  // namespace gpushare
