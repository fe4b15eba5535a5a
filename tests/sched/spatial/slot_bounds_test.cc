// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/slot_bounds.h"

#include <gtest/gtest.h>

#include <random>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class SlotBoundsTest : public ::testing::Test {
 protected:
  // The process says this now. Returns whether it is believed.
  bool says() {
    return bounds_.check(now_, {.launches = launches_, .iterations = said_}).iterations.has_value();
  }
  void recognised() { said_.source = ShimSource::kRecognised; }
  void announced() { said_.source = ShimSource::kAnnounced; }
  // One iteration of so long, of which the process says that it was `claimed`.
  void iterate(Nanos length, Nanos claimed) {
    ++said_.begun;
    says();
    now_ += length;
    launches_ += 100;
    ++said_.ended;
    said_.busy_ns += static_cast<uint64_t>(claimed.count());
    said_.latency_ns += static_cast<uint64_t>(claimed.count());
  }

  Time now_{1000s};
  uint64_t launches_ = 1'000'000;
  IterationsView said_{.source = ShimSource::kAnnounced,
                       .confidence = 1000,
                       .begun = 500,
                       .ended = 500,
                       .busy_ns = 123'000'000'000,
                       .latency_ns = 234'000'000'000};
  SlotBounds bounds_;
};

TEST_F(SlotBoundsTest, TheTruthIsBelieved) {
  std::mt19937 random(1);
  for (const bool is_announced : {false, true}) {
    is_announced ? announced() : recognised();
    for (int i = 0; i < 2000; ++i) {
      const Nanos length = std::chrono::microseconds(1 + random() % 300'000);
      iterate(length, length);
      ASSERT_TRUE(says()) << i << ": " << bounds_.reason();
      if (random() % 10 == 0) now_ += 5s;  // it rests
    }
  }
}

// The thread that reads stood still for 5 s, either before it has read or after.
TEST_F(SlotBoundsTest, TheTruthIsBelievedHoweverLongReadingTook) {
  const auto says_slowly = [&] {
    now_ += 5s;
    return bounds_.check(now_, {.launches = launches_, .iterations = said_}, 5s)
        .iterations.has_value();
  };
  iterate(20ms, 20ms);
  ASSERT_TRUE(says_slowly());
  iterate(20ms, 5s);  // it began when the slot had been read
  EXPECT_TRUE(says()) << bounds_.reason();
  now_ += 10ms;
  ++said_.begun;
  ++said_.ended;
  said_.busy_ns += 5'000'000'000;
  said_.latency_ns += 5'000'000'000;
  EXPECT_TRUE(says_slowly()) << bounds_.reason();
  ++said_.begun;
  ++said_.ended;
  said_.busy_ns += 60'000'000'000;
  EXPECT_FALSE(says_slowly()) << "a lie is one";
}

TEST_F(SlotBoundsTest, IterationsLongerThanTheTimeThatPassedAreNot) {
  iterate(20ms, 20ms);
  says();
  iterate(20ms, 20ms);
  ASSERT_TRUE(says());
  iterate(20ms, 500ms);
  EXPECT_FALSE(says());
  EXPECT_NE(bounds_.reason().find("longer than the time"), std::string_view::npos);
  now_ += SlotBounds::kDistrust;
  iterate(20ms, 20ms);
  EXPECT_TRUE(says()) << "it is heard again";
  EXPECT_TRUE(bounds_.reason().empty());
}

// They may be those of several loops on streams of their own, so it takes a while.
TEST_F(SlotBoundsTest, RecognisedOnesThatTakeFarTooLongAreNotEither) {
  recognised();
  const Time begin = now_;
  do iterate(10ms, 1s);
  while (says() && now_ - begin < 10min);
  EXPECT_LT(now_ - begin, 2min);
}

TEST_F(SlotBoundsTest, LoopsOnManyStreamsAreBelieved) {
  recognised();
  says();
  for (int i = 1; i < 20'000; ++i) {  // sixteen of 100 ms, and one of ten minutes ends once
    now_ += 100ms;
    launches_ += 1600;
    const bool has_long = i == 6000;
    said_.ended = said_.begun += 15;
    said_.busy_ns += 1'500'000'000 + (has_long ? 600'000'000'000 : 0);
    said_.latency_ns += 1'500'000'000 + (has_long ? 600'000'000'000 : 0);
    ASSERT_TRUE(says()) << i << ": " << bounds_.reason();
  }
}

TEST_F(SlotBoundsTest, WhatRanWhenTheAgentCameMayHaveRunLong) {
  said_.begun += 8;  // eight are under way
  says();
  for (int i = 0; i < 8; ++i) {
    now_ += 10ms;
    ++said_.ended;
    said_.busy_ns += 300'000'000'000;
    said_.latency_ns += 300'000'000'000;
    ASSERT_TRUE(says()) << bounds_.reason();
  }
}

TEST_F(SlotBoundsTest, WhoGoesOnLyingIsNotHeardForLong) {
  int believed = 0;
  says();
  for (int i = 0; i < 10'000; ++i) {
    iterate(10ms, 1s);
    believed += says();
  }
  EXPECT_LE(believed, 10) << "of 100 s";
}

TEST_F(SlotBoundsTest, RequestsSideBySideMayTakeLongTogether) {
  for (int i = 0; i < 100; ++i) {  // eight at a time, 100 ms each
    said_.begun += 8;
    said_.arrivals += 8;
    says();
    now_ += 100ms;
    said_.ended += 8;
    said_.busy_ns += 800'000'000;
    said_.latency_ns += 800'000'000;
    ASSERT_TRUE(says()) << bounds_.reason();
  }
}

TEST_F(SlotBoundsTest, AQueueMakesLatenciesLongerThanWork) {
  // Sixty come at once and are answered one by one, 50 ms each.
  for (int round = 0; round < 3; ++round) {
    said_.arrivals += 60;
    says();
    for (int i = 1; i <= 60; ++i) {
      ++said_.begun;
      says();
      now_ += 50ms;
      ++said_.ended;
      said_.busy_ns += 50'000'000;
      said_.latency_ns += static_cast<uint64_t>(i) * 50'000'000;
      ASSERT_TRUE(says()) << i << ": " << bounds_.reason();
    }
    now_ += 1s;
  }
}

TEST_F(SlotBoundsTest, IterationsWithoutLaunchesAreNot) {
  recognised();
  says();
  for (int i = 0; i < 5000; ++i) {
    ++said_.begun;
    ++said_.ended;
    said_.busy_ns += 900'000;
    said_.latency_ns += 900'000;
    now_ += 1ms;
    if (!says()) break;
  }
  EXPECT_NE(bounds_.reason().find("launches nothing"), std::string_view::npos);
}

TEST_F(SlotBoundsTest, NorMoreOfThemThanAGpuCanLaunch) {
  says();
  said_.begun += 1'000'000'000;
  said_.ended += 1'000'000'000;
  now_ += 10ms;
  EXPECT_FALSE(says());
}

TEST_F(SlotBoundsTest, NorSumsThatFall) {
  iterate(10ms, 10ms);
  says();
  said_.busy_ns -= 1;
  EXPECT_FALSE(says());
}

TEST_F(SlotBoundsTest, AnotherCountBeginsAnew) {
  iterate(10ms, 10ms);
  says();
  said_ = {.source = ShimSource::kRecognised, .confidence = 900};
  EXPECT_TRUE(says());
  said_.ended = said_.begun = 0;
  EXPECT_TRUE(says());
}

TEST_F(SlotBoundsTest, AnyNumbersAreTaken) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    said_ = {.source = static_cast<ShimSource>(random() % 3),
             .begun = random() >> (random() % 64),
             .ended = random() >> (random() % 64),
             .busy_ns = random() >> (random() % 64),
             .latency_ns = random() >> (random() % 64),
             .arrivals = random() >> (random() % 64)};
    launches_ = random();
    now_ += Nanos(random() % 1'000'000'000);
    says();
  }
}

}  // namespace
}  // namespace gpushare
