// SPDX-License-Identifier: Apache-2.0
#include "sched/account/escape.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLate = 10ms;

// What the driver samples of a process that is thawed for this part of each second from the instant
// `since` on, and works as long as it may: `lag` seconds later.
bool is_seen(double thawed, int since, int lag, double busy_when_frozen, int seconds = 60) {
  Escape escape;
  const auto busy_at = [&](int second) {
    const double is_thawed = second < since ? 1 : thawed;
    return is_thawed + (1 - is_thawed) * busy_when_frozen;
  };
  bool is_seen = false;
  for (int second = 0; second < seconds; ++second) {
    escape.sample(busy_at(second - lag), second < since ? 1 : thawed);
    is_seen |= escape.take(Time(std::chrono::seconds(second)), kLate);
  }
  return is_seen;
}

TEST(Escape, SamplesThatComeLateAccuseNobody) {
  for (const double thawed : {0.0, 0.05, 0.2, 0.5, 0.9, 1.0})
    for (const int since : {0, 1, 5, 20})
      for (const int lag : {0, 1, 2}) EXPECT_FALSE(is_seen(thawed, since, lag, 0)) << thawed;
}

TEST(Escape, WhoIsSampledAtWorkWhileFrozenIsSeen) {
  for (const double thawed : {0.0, 0.05, 0.2, 0.5, 0.7})
    for (const int lag : {0, 1, 2}) EXPECT_TRUE(is_seen(thawed, 20, lag, 1)) << thawed;
}

TEST(Escape, ATurnIsToldOnceWhenNoThawFollowsSoon) {
  Escape escape;
  escape.ran(Time(1s));
  EXPECT_TRUE(escape.is_suspected());
  EXPECT_FALSE(escape.take(Time(1s + kLate / 2), kLate));
  EXPECT_TRUE(escape.take(Time(1s + kLate), kLate));
  EXPECT_FALSE(escape.take(Time(2s), kLate));
  EXPECT_FALSE(escape.is_suspected());
  escape.ran(Time(3s));
  escape.thawed(Time(3s + kLate / 2), kLate);
  EXPECT_FALSE(escape.take(Time(4s), kLate));
  escape.ran(Time(5s));
  escape.thawed(Time(5s + 2 * kLate), kLate);
  EXPECT_TRUE(escape.take(Time(6s), kLate)) << "it ran long before";
}

}  // namespace
}  // namespace gpushare
