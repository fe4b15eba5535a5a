// SPDX-License-Identifier: Apache-2.0
// Who lends its part between two requests, and how it wakes the agent.
#include "tests/sched/shim/shim_link_rig.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

// Who is between two requests lends, and its next launch wakes the agent: nobody looks for it.
TEST_F(ShimLinkTest, AProgramThatLendsStandsAtItsGateAndWakesTheAgent) {
  share("[gpu.0]\nsharing = 'spatial'\npolicy = 'tpot'\n");
  const std::vector<Setting> prefill{{"phase", "prefill"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, prefill, false));
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  ASSERT_FALSE(is_closed());
  EXPECT_EQ(link_->hear(MonotonicClock().now()), Time::max());
  const Time end = MonotonicClock().now() + 20s;
  while (!is_closed() && MonotonicClock().now() < end) step();
  ASSERT_TRUE(is_closed()) << "4 ms after its launch";
  EXPECT_EQ(slot_->iterations.run_until, UINT64_MAX) << "so that its gate wakes us";
  step();
  EXPECT_TRUE(is_closed());
  launch();
  slot_->waiting = 1;
  const uint64_t one = 1;
  ASSERT_EQ(::write(wake_.get(), &one, sizeof one), ssize_t{sizeof one});
  const Time now = MonotonicClock().now();
  EXPECT_EQ(link_->hear(now), now) << "a step is due";
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_EQ(slot_->iterations.run_until, 0u);
  EXPECT_EQ(link_->hear(now), Time::max());
}

// A program that writes to its descriptor all the time does not keep the agent at its steps.
TEST_F(ShimLinkTest, WakesAskForNoMoreStepsThanOneEachTwoMilliseconds) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  Time now = MonotonicClock().now();
  const Time begin = now;
  std::set<Time> due;
  for (int i = 0; i < 1000; ++i, now += 20us) {
    const uint64_t one = 1;
    ASSERT_EQ(::write(wake_.get(), &one, sizeof one), ssize_t{sizeof one});
    due.insert(link_->hear(now));
  }
  EXPECT_EQ(*due.begin(), begin);
  EXPECT_LE(due.size(), 12u) << "in 20 ms";
}

// Nobody would wait at the gate, and the work would never end.
TEST_F(ShimLinkTest, WhoHasWorkInLineThatWaitsOnTheGpuDoesNotLend) {
  share("[gpu.0]\nsharing = 'spatial'\npolicy = 'tpot'\ngate = 'credit'\n");
  const std::vector<Setting> prefill{{"phase", "prefill"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, prefill, false));
  ASSERT_NE(connect(), nullptr);
  slot_->credit.held = ShimHeld::kOnGpu;
  slot_->credit.issued = 7;
  slot_->credit.reached = 5;
  launch();
  step();
  ASSERT_FALSE(is_closed());
  const Time later = MonotonicClock().now() + 30ms;  // long after 4 ms
  while (MonotonicClock().now() < later) {
    step();
    ASSERT_FALSE(is_closed());
  }
  slot_->credit.reached = 7;
  const Time end = MonotonicClock().now() + 20s;
  while (!is_closed() && MonotonicClock().now() < end) step();
  EXPECT_TRUE(is_closed());
}

}  // namespace
}  // namespace gpushare::test
