// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/token_bucket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

Time at(Nanos since_boot) { return Time{since_boot}; }

struct Configured : TokenBucket {
  Configured(Nanos quota, Nanos period, Nanos burst, Time now) {
    configure(quota, period, burst, now);
  }
};

TEST(TokenBucket, ZeroBytesAreADisabledBucket) {
  TokenBucket bucket{};
  EXPECT_FALSE(bucket.is_enabled());
  EXPECT_EQ(bucket.refill(at(1h)), 0ns);
  EXPECT_EQ(bucket.tokens(), 0ns);
}

TEST(TokenBucket, StartsFull) {
  Configured bucket(30ms, 100ms, 40ms, at(5s));
  EXPECT_TRUE(bucket.is_enabled());
  EXPECT_EQ(bucket.tokens(), 40ms);
}

TEST(TokenBucket, EarnsQuotaPerPeriod) {
  Configured bucket(30ms, 100ms, 30ms, at(0s));
  bucket.charge(80ms);
  EXPECT_EQ(bucket.tokens(), -50ms);
  EXPECT_EQ(bucket.refill(at(100ms)), -20ms);
  EXPECT_EQ(bucket.refill(at(200ms)), 10ms);
  EXPECT_EQ(bucket.refill(at(210ms)), 13ms);
}

TEST(TokenBucket, RefillStopsAtBurst) {
  Configured bucket(30ms, 100ms, 30ms, at(0s));
  EXPECT_EQ(bucket.refill(at(10s)), 30ms);
  bucket.charge(10ms);
  EXPECT_EQ(bucket.tokens(), 20ms);
}

TEST(TokenBucket, RefillOfTheSameOrAnEarlierInstantChangesNothing) {
  Configured bucket(50ms, 100ms, 100ms, at(0s));
  bucket.charge(100ms);
  EXPECT_EQ(bucket.refill(at(100ms)), 50ms);
  EXPECT_EQ(bucket.refill(at(100ms)), 50ms);
  EXPECT_EQ(bucket.refill(at(20ms)), 50ms);
}

TEST(TokenBucket, OddRatesDoNotDriftOverManyRefills) {
  TokenBucket bucket{};
  const Nanos quota{333'333}, period{1'000'003};
  bucket.configure(quota, period, 1h, at(0s));
  bucket.charge(1h);
  Nanos now{};
  for (int i = 0; i < 100'000; ++i) bucket.refill(at(now += 7ns));
  EXPECT_EQ(bucket.tokens().count(), quota.count() * now.count() / period.count());
}

TEST(TokenBucket, StaysExactAfterYearsOfUptime) {
  TokenBucket bucket{};
  const Nanos years = 24h * 365 * 4;
  bucket.configure(999'999'999ns, 1s, 1s, at(years));
  bucket.charge(1s);
  EXPECT_NEAR(bucket.refill(at(years + 500ms)).count(), 499'999'999, 1);
}

TEST(TokenBucket, ChangeOfRateKeepsDebtAndTokens) {
  Configured bucket(30ms, 100ms, 30ms, at(7s));
  bucket.charge(70ms);
  bucket.configure(80ms, 100ms, 80ms, at(7s));
  EXPECT_EQ(bucket.tokens(), -40ms);
  EXPECT_EQ(bucket.refill(at(7100ms)), 40ms);
}

TEST(TokenBucket, ChangeOfRateCreditsTheOldRateUntilNow) {
  Configured bucket(50ms, 100ms, 100ms, at(0s));
  bucket.charge(100ms);
  bucket.configure(10ms, 100ms, 100ms, at(100ms));
  EXPECT_EQ(bucket.tokens(), 50ms);
  EXPECT_EQ(bucket.refill(at(200ms)), 60ms);
}

TEST(TokenBucket, SmallerBurstCutsTheTokens) {
  Configured bucket(30ms, 100ms, 60ms, at(0s));
  bucket.configure(30ms, 100ms, 10ms, at(0s));
  EXPECT_EQ(bucket.tokens(), 10ms);
}

TEST(TokenBucket, SameConfigurationAgainDoesNotRefill) {
  Configured bucket(30ms, 100ms, 30ms, at(0s));
  bucket.charge(50ms);
  bucket.configure(30ms, 100ms, 30ms, at(10s));
  EXPECT_EQ(bucket.tokens(), -20ms);
}

TEST(TokenBucket, EnabledAgainStartsFullWithoutOldDebt) {
  Configured bucket(30ms, 100ms, 30ms, at(0s));
  bucket.charge(1h);
  bucket.disable();
  EXPECT_FALSE(bucket.is_enabled());
  EXPECT_EQ(bucket.tokens(), 0ns);
  bucket.charge(1h);
  bucket.configure(30ms, 100ms, 30ms, at(1s));
  EXPECT_EQ(bucket.tokens(), 30ms);
}

TEST(TokenBucket, SurvivesMoreChangesThanThereAreGenerations) {
  Configured bucket(1ms, 100ms, 1s, at(0s));
  bucket.charge(500ms);
  for (int i = 2; i < 300; ++i) bucket.configure(Nanos(i), 100ms, 1s, at(0s));
  EXPECT_EQ(bucket.tokens(), 500ms);
}

// The bucket against a direct account in fractions of a nanosecond (tokens * period, 128 bits).
class Model {
 public:
  void configure(int64_t quota, int64_t period, int64_t burst, int64_t tokens, int64_t now) {
    quota_ = quota, period_ = period, burst_ = burst, now_ = now;
    scaled_ = static_cast<__int128>(tokens) * period;
  }
  void refill(int64_t now) {
    if (now <= now_) return;
    scaled_ += static_cast<__int128>(quota_) * (now - now_);
    scaled_ = std::min(scaled_, static_cast<__int128>(burst_) * period_);
    now_ = now;
  }
  void charge(int64_t used) { scaled_ -= static_cast<__int128>(used) * period_; }
  double tokens() const { return static_cast<double>(scaled_) / static_cast<double>(period_); }

 private:
  int64_t quota_ = 0, period_ = 1, burst_ = 0, now_ = 0;
  __int128 scaled_ = 0;
};

TEST(TokenBucketProperty, FollowsTheModelThroughRandomOperations) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    TokenBucket bucket{};
    Model model;
    int64_t now = pick(0, 1'000'000'000'000);
    const auto configure = [&] {
      const int64_t period = pick(1'000'000, 1'000'000'000);
      const int64_t quota = pick(1'000, period), burst = pick(1'000, 2 * period);
      bucket.configure(Nanos(quota), Nanos(period), Nanos(burst), at(Nanos(now)));
      model.configure(quota, period, burst, bucket.tokens().count(), now);
    };
    configure();
    for (int step = 0; step < 2000; ++step) {
      const int64_t kind = pick(0, 99);
      if (kind < 60) {
        now += pick(0, kind < 3 ? 3'000'000'000 : 5'000'000);
        bucket.refill(at(Nanos(now)));
        model.refill(now);
      } else if (kind < 98) {
        const int64_t used = pick(0, 8'000'000);
        bucket.charge(Nanos(used));
        model.charge(used);
      } else {
        bucket.refill(at(Nanos(now)));
        model.refill(now);
        ASSERT_NEAR(static_cast<double>(bucket.tokens().count()), model.tokens(), 1.0);
        configure();
      }
      // Two roundings down, of two instants: never a whole nanosecond off, however many steps.
      ASSERT_NEAR(static_cast<double>(bucket.tokens().count()), model.tokens(), 1.0)
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(TokenBucketRace, ConcurrentRefillsCreditEachNanosecondOnce) {
  constexpr int kThreads = 4, kSteps = 50000;
  Configured bucket(300ns, 1000ns, 1h, at(0s));
  bucket.charge(1h);  // empty: nothing can overflow in this test
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&bucket] {
        for (int i = 1; i <= kSteps; ++i) {  // the same instants in every thread
          bucket.refill(at(i * 1000ns));
          bucket.charge(10ns);
        }
      });
  }
  EXPECT_EQ(bucket.tokens(), kSteps * 300ns - kThreads * kSteps * 10ns);
}

TEST(TokenBucketRace, NothingAboveTheBurstIsEverSeen) {
  constexpr int kThreads = 3, kSteps = 50000;
  Configured bucket(900ns, 1000ns, 2000ns, at(0s));
  std::atomic<int> above = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 1; i <= kSteps; ++i) {
          if (bucket.refill(at(i * 1000ns + thread * 77ns)) > 2000ns) ++above;
          bucket.charge(200ns);
          if (bucket.tokens() > 2000ns) ++above;
        }
      });
  }
  EXPECT_EQ(above, 0);
  EXPECT_LE(bucket.refill(at(kSteps * 1000ns)), 2000ns);
}

TEST(TokenBucketRace, NoChargeIsLostWhileTheRateChanges) {
  constexpr int kThreads = 3, kCharges = 20000;
  Configured bucket(1ms, 100ms, 1h, at(1s));
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < kCharges; ++i) {
          bucket.charge(3ns);
          if (i % 16 == 0) bucket.refill(at(1s));
        }
      });
    for (int i = 0; i < 2000; ++i) bucket.configure(Nanos(1000 + i % 7), 100ms, 1h, at(1s));
  }
  EXPECT_EQ(bucket.tokens(), Nanos(1h) - kThreads * kCharges * 3ns);
}

// The tests of death: a stopped child counts as dead, and what it left is tested on a copy.
class TokenBucketDeath : public testing::Test {
 protected:
  TokenBucket& bucket() { return plane_.region().tenants[3].buckets[1]; }

  struct Copy {
    alignas(TokenBucket) unsigned char bytes[sizeof(TokenBucket)];
    explicit Copy(const TokenBucket& from) { std::memcpy(bytes, &from, sizeof from); }
    TokenBucket* operator->() { return reinterpret_cast<TokenBucket*>(bytes); }
  };

  // Steps through `operation`, check(copy) after each instruction.
  void step_through(const std::function<void()>& operation,
                    const std::function<void(Copy&)>& check) {
    SteppedChild child(Stride::kInstruction, operation);
    if (!child.is_traced())
      GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
    while (child.step()) {
      Copy copy(bucket());
      check(copy);
      if (HasFatalFailure()) FAIL() << "after instruction " << child.steps();
    }
  }

 private:
  TempPlane plane_;
};

TEST_F(TokenBucketDeath, ChargeIsDoneOrNot) {
  bucket().configure(30ms, 100ms, 30ms, at(1s));
  bool is_charged = false;
  step_through([&] { bucket().charge(50ms); },
               [&](Copy& copy) {
                 if (copy->tokens() == -20ms) is_charged = true;
                 ASSERT_EQ(copy->tokens(), is_charged ? -20ms : 30ms);
               });
  EXPECT_TRUE(is_charged || IsSkipped());
}

TEST_F(TokenBucketDeath, RefillIsFinishedByWhoeverRefillsNext) {
  Nanos start = 1s;
  for (const Nanos used : {0ms, 10ms, 400ms}) {
    bucket().disable();
    bucket().configure(30ms, 100ms, 30ms, at(start += 10s));
    bucket().charge(used);
    const Nanos after = std::min<Nanos>(30ms, bucket().tokens() + 300ms);
    step_through([&] { bucket().refill(at(start + 1s)); },
                 [&](Copy& copy) {
                   ASSERT_LE(copy->tokens(), after);
                   ASSERT_EQ(copy->refill(at(start + 1s)), after);
                   ASSERT_EQ(copy->refill(at(start + 1s)), after);
                 });
  }
}

TEST_F(TokenBucketDeath, ChangeOfRateIsDoneOrNotAndCanBeMadeAgain) {
  bucket().configure(30ms, 100ms, 30ms, at(1s));
  bucket().charge(50ms);
  step_through([&] { bucket().configure(80ms, 100ms, 160ms, at(2s)); },
               [&](Copy& copy) {
                 const Nanos seen = copy->tokens();
                 ASSERT_TRUE(seen == -20ms || seen == 30ms) << seen.count();
                 copy->configure(80ms, 100ms, 160ms, at(2s));
                 ASSERT_EQ(copy->tokens(), 30ms);
                 ASSERT_EQ(copy->refill(at(2100ms)), 110ms);
               });
}

// Every interleaving of one operation with one charge by another process: the charge comes after
// the first, the second, .. instruction of the operation.
class TokenBucketInterleaving : public TokenBucketDeath {
 protected:
  void charge_after_each_step_of(const std::function<void()>& operation,
                                 const std::function<void()>& check) {
    bool is_over = false;
    for (uint64_t charge_after = 0; !is_over; ++charge_after) {
      bucket().disable();
      bucket().configure(30ms, 100ms, 30ms, at(now_ += 10s));
      bucket().charge(80ms);
      SteppedChild child(Stride::kInstruction, operation);
      if (!child.is_traced())
        GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
      while (child.steps() < charge_after && !is_over) is_over = !child.step();
      bucket().charge(1ms);
      if (!is_over) child.finish();
      check();
      if (HasFatalFailure()) FAIL() << "charged after instruction " << charge_after;
    }
  }
  Time now() const { return at(now_); }

 private:
  Nanos now_{};
};

TEST_F(TokenBucketInterleaving, ChargeDuringARefillCountsOnce) {
  charge_after_each_step_of([&] { bucket().refill(now() + 100ms); },
                            [&] { ASSERT_EQ(bucket().tokens(), -21ms); });
}

TEST_F(TokenBucketInterleaving, ChargeDuringARefillThatOverflowsIsMadeBeforeOrAfterIt) {
  bool is_before = false, is_after = false;
  charge_after_each_step_of([&] { bucket().refill(now() + 1s); },
                            [&] {
                              is_before |= bucket().tokens() == 30ms;
                              is_after |= bucket().tokens() == 29ms;
                              ASSERT_TRUE(bucket().tokens() == 30ms || bucket().tokens() == 29ms);
                            });
  EXPECT_TRUE((is_before && is_after) || IsSkipped());
}

TEST_F(TokenBucketInterleaving, ChargeDuringAChangeOfRateCountsOnce) {
  charge_after_each_step_of([&] { bucket().configure(60ms, 100ms, 90ms, now()); },
                            [&] { ASSERT_EQ(bucket().tokens(), -51ms); });
}

}  // namespace
}  // namespace gpushare
