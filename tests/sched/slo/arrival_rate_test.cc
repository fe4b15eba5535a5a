// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/arrival_rate.h"

#include <gtest/gtest.h>

#include <random>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class ArrivalRateTest : public ::testing::Test {
 protected:
  // The rate after a look a second later, in which so many came.
  double after(uint64_t came) {
    now_ += 1s;
    count_ += came;
    return rate_.look(now_, count_);
  }
  Time now_{100s};
  uint64_t count_ = 1000;  // from before
  ArrivalRate rate_{now_, count_};
};

TEST_F(ArrivalRateTest, IsWhatCameAtFirst) { EXPECT_DOUBLE_EQ(after(20), 20); }

TEST_F(ArrivalRateTest, AFewOrAMomentSayNothing) {
  EXPECT_LT(after(7), 0);
  ArrivalRate other(now_, count_);
  EXPECT_LT(other.look(now_ + 2ms, count_ + 10), 0);
  EXPECT_LT(other.look(now_, count_), 0);
}

TEST_F(ArrivalRateTest, ChanceMovesItLittle) {
  std::mt19937_64 random(1);
  std::poisson_distribution<uint64_t> came(20);
  after(20);
  double off = 0, raw_off = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = came(random);
    off += std::abs(after(now) - 20);
    raw_off += std::abs(static_cast<double>(now) - 20);
  }
  EXPECT_LT(off, raw_off * 0.75);
}

TEST_F(ArrivalRateTest, ASurpriseIsBelievedAtOnce) {
  after(20);
  EXPECT_DOUBLE_EQ(after(100), 100);
  EXPECT_DOUBLE_EQ(after(20), 20);
}

TEST_F(ArrivalRateTest, WhenNothingComesItFalls) {
  after(100);
  EXPECT_LE(after(0), 9);
  for (int i = 0; i < 9; ++i) after(0);
  EXPECT_LE(after(0), 0.9);
}

// What is rare is not taken for rarer than it is.
TEST_F(ArrivalRateTest, IsRightOnAverage) {
  for (const double rate : {0.5, 3.0, 50.0}) {
    ArrivalRate counted(now_, count_);
    std::mt19937_64 random(1);
    std::poisson_distribution<uint64_t> came(rate);
    double sum = 0;
    for (int i = 0; i < 1100; ++i) {
      now_ += 1s;
      count_ += came(random);
      const double seen = counted.look(now_, count_);
      sum += i < 100 ? 0 : seen;
    }
    EXPECT_NEAR(sum / 1000, rate, rate / 8) << rate;
  }
}

TEST_F(ArrivalRateTest, FewAreCountedTogether) {
  for (int i = 0; i < 4; ++i) after(2);
  for (int i = 0; i < 30; ++i) EXPECT_NEAR(after(2), 2, 0.5) << i;
}

TEST_F(ArrivalRateTest, AtTheSameTimeItIsTheSame) {
  after(20);
  EXPECT_DOUBLE_EQ(rate_.look(now_, count_ + 50), 20);
}

}  // namespace
}  // namespace gpushare
