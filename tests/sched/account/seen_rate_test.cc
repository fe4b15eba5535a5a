// SPDX-License-Identifier: Apache-2.0
#include "sched/account/seen_rate.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

Time at(Nanos since) { return Time(100s) + since; }

TEST(SeenRate, NothingIsKnownAtFirst) { EXPECT_EQ(SeenRate().least(at(1s)), 0); }

TEST(SeenRate, TheSurestOfWhatWasSeenCounts) {
  SeenRate seen;
  seen.note(30ms, 100ms, at(1s));
  seen.note(80ms, 100ms, at(2s));
  seen.note(0ms, 200ms, at(3s));
  EXPECT_DOUBLE_EQ(seen.least(at(3s)), 0.8);
}

TEST(SeenRate, WhatIsShortTellsNothing) {
  SeenRate seen;
  seen.note(10ms, 10ms, at(1s));
  EXPECT_EQ(seen.least(at(1s)), 0);
}

TEST(SeenRate, WhatIsOldIsForgotten) {
  SeenRate seen;
  seen.note(100ms, 100ms, at(1s));
  for (Nanos time = 1s; time < 6s; time += 200ms) seen.note(10ms, 100ms, at(time));
  EXPECT_DOUBLE_EQ(seen.least(at(6s)), 1);
  for (Nanos time = 6s; time < 12s; time += 200ms) seen.note(10ms, 100ms, at(time));
  EXPECT_DOUBLE_EQ(seen.least(at(12s)), 0.1);
  EXPECT_EQ(seen.least(at(30s)), 0) << "it was not there meanwhile";
}

}  // namespace
}  // namespace gpushare
