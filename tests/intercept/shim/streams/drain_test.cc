// SPDX-License-Identifier: Apache-2.0
// How long launches are held: as long as the queue makes progress, however long that is, and not
// behind a kernel that waits for the host.
#include "intercept/shim/streams/drain.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

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

// A stream that the program keeps full with so many kernels, and in which each launch records a
// milestone if one is due. As the shim, it looks again at 64 launches when it is told to look no
// more.
class Milestone : public ::testing::Test {
 protected:
  Milestone() {
    self = this;
    driver_.cuEventCreate = [](CUevent* event, unsigned) {
      *event = reinterpret_cast<CUevent>(++self->events_);
      return CUDA_SUCCESS;
    };
    driver_.cuEventRecord = [](CUevent event, CUstream) {
      self->passes_at_[event] = self->ends_;
      return CUDA_SUCCESS;
    };
    driver_.cuStreamQuery = [](CUstream) {
      return self->now_ns_ < self->ends_ ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    driver_.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    driver_.cuEventQuery = [](CUevent event) {
      ++self->queries_;
      return self->now_ns_ < self->passes_at_[event] ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
  }
  void run(uint64_t kernel_ns, std::size_t depth, uint64_t time_ns, uint64_t place = 7) {
    for (const uint64_t end = now_ns_ + time_ns; now_ns_ < end;) {
      while (line_.size() < depth) {
        if (launches_++ % 64 == 0) looks_ = true;
        if (looks_) looks_ = milestones_.record(driver_, nullptr, now_ns_, place);
        ends_ = std::max(ends_, now_ns_) + kernel_ns;
        line_.push_back(ends_);
      }
      now_ns_ = line_.front();
      line_.pop_front();
    }
  }

  static inline Milestone* self = nullptr;
  Driver driver_{};
  Milestones milestones_{};
  std::map<CUevent, uint64_t> passes_at_;
  std::deque<uint64_t> line_;  // when each of its kernels ends
  uint64_t now_ns_ = 1000 * kMs, ends_ = 0;
  uintptr_t events_ = 0;
  uint64_t launches_ = 0, queries_ = 0;
  bool looks_ = false;
};

TEST_F(Milestone, TellsHowLongTheQueueTakes) {
  struct Row {
    uint64_t kernel_us;
    std::size_t depth;
  };
  for (const Row& row : {Row{2000, 8}, {8000, 8}, {2000, 2}, {300, 8}, {50, 64}, {20'000, 8}}) {
    milestones_.drop(driver_);
    line_.clear();
    ends_ = now_ns_;
    run(row.kernel_us * 1000, row.depth, 3000 * kMs);
    // A launch goes behind what is in line when it is made, all of it but what has just ended.
    const double due_us = static_cast<double>(row.kernel_us) * static_cast<double>(row.depth - 1);
    EXPECT_NEAR(static_cast<double>(milestones_.drain_ns()) / 1e3, due_us, 0.1 * due_us + 300)
        << row.kernel_us << " us, " << row.depth;
    EXPECT_EQ(milestones_.drain_place(), 7u);
  }
}

// It waits for each kernel, and then its host is busy for a while, or blocked. What it launches
// goes into an empty queue, or behind a copy of a microsecond.
TEST_F(Milestone, OfAProgramThatWaitsForItsWorkSaysNothingOfItsHost) {
  for (const uint64_t copy_ns : {0, 1000}) {
    for (uint64_t i = 0; i < 1000; ++i) {
      ends_ = now_ns_ + copy_ns;
      milestones_.record(driver_, nullptr, now_ns_, 7 + copy_ns);
      ends_ = now_ns_ = ends_ + kMs / 5;
      if (milestones_.is_watching()) milestones_.look_after_wait(driver_, now_ns_);
      now_ns_ += i % 8 == 7 ? 30 * kMs : kMs / 20;
    }
    EXPECT_GT(milestones_.drain_ns(), 0u);
    EXPECT_LE(milestones_.drain_ns(), kMs / 5 + copy_ns);
    EXPECT_EQ(milestones_.drain_place(), 7 + copy_ns);
  }
  EXPECT_LT(queries_, 2000u * 2);
  run(2 * kMs, 8, 1000 * kMs);
  EXPECT_NEAR(static_cast<double>(milestones_.drain_ns()), 14.0 * kMs, 2.0 * kMs)
      << "then it keeps its queue full";
}

TEST_F(Milestone, OfANewPlaceIsNotMixedWithTheOldOne) {
  run(8 * kMs, 8, 2000 * kMs, 7);
  line_.clear();
  ends_ = now_ns_;
  run(2 * kMs, 8, 100 * kMs, 9);
  EXPECT_EQ(milestones_.drain_place(), 9u);
  EXPECT_NEAR(static_cast<double>(milestones_.drain_ns()), 14.0 * kMs, 1.0 * kMs);
}

// A thread may be stopped between its look at the clock and its record, which then comes behind one
// of a later instant.
TEST_F(Milestone, OfAThreadThatComesLateWithItsTimeNothingIsLearnt) {
  milestones_.record(driver_, nullptr, now_ns_, 7);  // nothing is in line: it has passed at once
  milestones_.record(driver_, nullptr, now_ns_ - 3 * kMs, 7);
  EXPECT_LT(milestones_.drain_ns(), kMs);
  EXPECT_EQ(milestones_.count_left(driver_), 0u);
}

TEST_F(Milestone, CostsDenseLaunchesLittle) {
  run(10'000, 512, 1000 * kMs);
  EXPECT_GT(launches_, 90'000u);
  EXPECT_LT(queries_, launches_ / 20);
  EXPECT_NEAR(static_cast<double>(milestones_.drain_ns()) / 1e3, 5110, 600);
}

}  // namespace
}  // namespace gpushare::shim
