// SPDX-License-Identifier: Apache-2.0
// How long launches are held: as long as the queue makes progress, however long that is, and not
// behind a kernel that waits for the host.
#include "intercept/shim/streams/drain.h"

#include <gtest/gtest.h>

namespace gpushare::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;

// How long launches are held that ask every ms; `left`: what there is, by ms.
template <class Left>
uint64_t held_ms(Drain& drain, uint64_t interval_ns, const Left& left) {
  for (uint64_t ms = 0; ms < 600'000; ++ms) {
    const uint32_t there = left(ms);
    if (there == 0 || !drain.may_hold((1000 + ms) * kMs, there, interval_ns)) return ms;
  }
  return ~uint64_t{0};
}

TEST(Drain, AQueueWhoseKernelsEndIsWaitedForToItsEnd) {
  Drain drain{};
  const auto kernels_of_50_ms = [](uint64_t ms) { return static_cast<uint32_t>(64 - ms / 50); };
  EXPECT_EQ(held_ms(drain, 50 * kMs, kernels_of_50_ms), 64u * 50);
  EXPECT_FALSE(drain.is_pausing(5000 * kMs));
}

TEST(Drain, WhatIsSeenWhileItHoldsIsLearnt) {
  Drain drain{};
  const auto kernels_of_900_ms = [](uint64_t ms) { return static_cast<uint32_t>(8 - ms / 900); };
  EXPECT_EQ(held_ms(drain, 0, kernels_of_900_ms), 8u * 900);
}

TEST(Drain, AKernelThatWaitsIsNotWaitedForLong) {
  Drain drain{};
  const auto one = [](uint64_t) { return 1u; };
  EXPECT_EQ(held_ms(drain, 2 * kMs, one), Drain::kLeastPatienceNs / kMs);
  EXPECT_TRUE(drain.is_pausing(2100 * kMs));
}

TEST(Drain, StreamsThatAreFilledAgainAreNoProgress) {
  Drain drain{};
  const auto others_go_on = [](uint64_t ms) { return static_cast<uint32_t>(1 + ms % 10); };
  EXPECT_LT(held_ms(drain, 2 * kMs, others_go_on), 2 * Drain::kLeastPatienceNs / kMs);
}

TEST(Drain, PausesDouble) {
  Drain drain{};
  uint64_t now = 1;
  for (uint64_t pause = Drain::kFirstPauseNs; pause < Drain::kLongestPauseNs; pause *= 2) {
    drain.pause(now);
    EXPECT_TRUE(drain.is_pausing(now + pause - 1));
    EXPECT_FALSE(drain.is_pausing(now + pause));
    now += pause;
  }
  drain.end(true);
  drain.pause(now);
  EXPECT_FALSE(drain.is_pausing(now + Drain::kFirstPauseNs)) << "a success ends that";
}

}  // namespace
}  // namespace gpushare::shim
