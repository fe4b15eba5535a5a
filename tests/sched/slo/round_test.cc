// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/round.h"

#include <gtest/gtest.h>

#include "sched/slo/meter.h"
#include "sched/spatial/slot_reading.h"
#include "tests/sched/support/slo_programs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

IterationsView announced(uint64_t ended, uint64_t busy_ms, uint64_t latency_ms,
                         uint64_t arrivals = 0) {
  return {.source = ShimSource::kAnnounced,
          .confidence = 1000,
          .ended = ended,
          .busy_ns = busy_ms * 1'000'000,
          .latency_ns = latency_ms * 1'000'000,
          .arrivals = arrivals};
}

SloMeasure measure(const IterationsView& before, const IterationsView& now, Nanos length = 1s) {
  SloRound round;
  round.add(before, now, length);
  return round.measure();
}

TEST(SloRound, MeansAreOfWhatCameBetween) {
  const SloMeasure seen = measure(announced(100, 500, 900, 7), announced(150, 1000, 2900, 67), 2s);
  EXPECT_EQ(seen.iterations, 50u);
  EXPECT_DOUBLE_EQ(seen.latency, 0.040);
  EXPECT_DOUBLE_EQ(seen.service, 0.010);
  EXPECT_DOUBLE_EQ(seen.throughput, 25);
}

TEST(SloRound, LaunchesAreOfOneIteration) {
  IterationsView before = announced(100, 500, 900), now = announced(150, 1000, 2900);
  before.launches = 7000;
  now.launches = 8500;
  EXPECT_DOUBLE_EQ(measure(before, now).launches, 30);
  now.launches = 0;
  EXPECT_DOUBLE_EQ(measure(before, now).launches, 0) << "another process's";
}

TEST(SloRound, ARecognisedLoopThatWaitsForRequestsIsNotSlow) {
  IterationsView before = announced(10, 100, 1000), now = announced(20, 150, 2000);
  before.source = now.source = ShimSource::kRecognised;
  before.confidence = now.confidence = 900;
  EXPECT_DOUBLE_EQ(measure(before, now).latency, 0.005);
}

TEST(SloRound, UncertainOnesDoNotCount) {
  IterationsView before = announced(10, 100, 1000), now = announced(20, 150, 2000);
  before.source = now.source = ShimSource::kRecognised;
  now.confidence = 500;
  EXPECT_EQ(measure(before, now).processes, 0u);
}

TEST(SloRound, SeveralProcessesAreOneTenant) {
  SloRound round;
  round.add(announced(0, 0, 0), announced(10, 100, 100), 1s);
  round.add(announced(0, 0, 0), announced(30, 900, 900), 1s);
  const SloMeasure seen = round.measure();
  EXPECT_EQ(seen.processes, 2u);
  EXPECT_DOUBLE_EQ(seen.latency, 0.025);
  EXPECT_DOUBLE_EQ(seen.throughput, 40);
}

TEST(SloRound, WhatCannotBeDoesNotCount) {
  const IterationsView base = announced(100, 500, 900, 5);
  const struct {
    const char* what;
    IterationsView now;
  } rows[] = {
      {"nothing ended", announced(100, 500, 900, 5)},
      {"iterations fell", announced(50, 600, 1000, 5)},
      {"busy time fell", announced(110, 400, 1000, 5)},
      {"latency fell", announced(110, 600, 800, 5)},
      {"arrivals fell", announced(110, 600, 1000, 4)},
      {"more than a GPU can do", announced(100'000'000, 600, 1000, 5)},
      {"hours for one", announced(101, 501, 1ULL << 40, 5)},
      {"no time at all", announced(110, 500, 900, 5)},
  };
  for (const auto& row : rows) EXPECT_EQ(measure(base, row.now).processes, 0u) << row.what;
}

TEST(SlotReading, IsWholeOrNothing) {
  ShimSlot slot{};
  slot.iterations.sequence = 3;
  EXPECT_FALSE(read_slot(slot).iterations) << "stopped in the middle of a write";
  slot.iterations.sequence = 4;
  slot.iterations.source = static_cast<ShimSource>(77);
  slot.iterations.confidence = 5000;
  slot.iterations.phase = static_cast<ShimPhase>(9);
  slot.iterations.slo_us = 0xFFFFFFFF;
  const auto reading = read_slot(slot).iterations;
  ASSERT_TRUE(reading);
  EXPECT_EQ(*reading, (IterationsView{.confidence = 1000}));
}

class SloMeterTest : public ::testing::Test {
 protected:
  // Iterations of 15 ms / groups, looked at every 10 ms.
  void run(Nanos time, uint32_t groups) {
    for (const Time end = now_ + time; now_ < end;) {
      now_ += 10ms;
      program_.slot->gpus[0].wanted = (1U << groups) - 1;
      program_.run_until(now_);
      look(groups, {&program_});
    }
  }
  void look(uint32_t groups, std::vector<const SloProgram*> programs) {
    std::vector<ProcessView> views;
    for (const SloProgram* program : programs)
      views.push_back({.process = program->id,
                       .command_line = "serve",
                       .iterations = read_slot(*program->slot).iterations});
    std::vector<const ProcessView*> pointers;
    for (const ProcessView& view : views) pointers.push_back(&view);
    meter_.look(now_, groups, sharers_, pointers);
  }
  uint32_t sharers_ = 1;
  SloMeter meter_;
  SloProgram program_{7, 1, WorldTenant{.shape = {}, .full_speed = 0.001}};
  Time now_{1s};
};

TEST_F(SloMeterTest, MeasuresFromTheFirstIterationThatEndedOnTheseGroups) {
  run(500ms, 3);
  run(500ms, 5);
  const SloMeasure seen = meter_.take(now_, 1);
  EXPECT_EQ(meter_.groups(), 5u);
  EXPECT_NEAR(seen.latency, 0.003, 1e-6) << "nothing of the 5 ms on 3 groups";
  EXPECT_NEAR(seen.throughput, 1000.0 / 3, 10);
  EXPECT_EQ(meter_.command_line(), "serve");
}

TEST_F(SloMeterTest, MeasuresAnewWhenOthersShareItsGroups) {
  run(500ms, 5);
  sharers_ = 2;
  program_.others = 0.5;
  run(500ms, 5);
  EXPECT_NEAR(meter_.take(now_, 1).latency, 0.006, 1e-6) << "nothing of the 3 ms alone";
}

TEST_F(SloMeterTest, TooFewGoOnToBeCounted) {
  run(200ms, 15);
  program_.set_full_speed(0.100);
  meter_.take(now_, 1);
  run(300ms, 15);
  EXPECT_EQ(meter_.take(now_, 8).processes, 0u);
  run(700ms, 15);
  const SloMeasure seen = meter_.take(now_, 8);
  EXPECT_GE(seen.iterations, 8u);
  EXPECT_LE(seen.iterations, 10u);
}

TEST_F(SloMeterTest, ArrivalsAreCountedWhereverItRuns) {
  program_.set_arrivals(50);
  run(300ms, 5);
  EXPECT_GT(meter_.arrivals(now_), 0);
  for (int i = 0; i < 40; ++i) run(100ms, 3 + i % 2);
  EXPECT_EQ(meter_.take(now_, 8).processes, 0u) << "nowhere long enough";
  EXPECT_NEAR(meter_.arrivals(now_), 50, 10);
  EXPECT_LE(meter_.backlog(), 2u);
  program_.slot->iterations.arrivals = 1ULL << 60;
  run(10ms, 3);
  EXPECT_LE(meter_.arrivals(now_), 1e6) << "whatever it says";
}

// Requests that are dropped before they begin: they are no queue, but for a while.
TEST_F(SloMeterTest, WhatIsNeverBegunIsNoQueueForLong) {
  program_.set_arrivals(50);
  program_.slot->iterations.arrivals = 100;
  run(1s, 5);
  EXPECT_LE(meter_.backlog(), 2u);
  program_.slot->iterations.arrivals += 20;
  run(10ms, 5);
  EXPECT_GE(meter_.backlog(), 20u);
  run(11s, 5);
  EXPECT_LE(meter_.backlog(), 2u);
}

TEST_F(SloMeterTest, ABusyProcessCountsMoreThanOneThatIdles) {
  program_.set_arrivals(50);
  SloProgram idle(8, 1, WorldTenant{.shape = {}, .full_speed = 0.001, .arrivals = 0.001});
  for (int i = 0; i < 300; ++i) {
    now_ += 10ms;
    program_.run_until(now_);
    idle.run_until(now_);
    look(15, {&program_, &idle});
  }
  EXPECT_NEAR(meter_.arrivals(now_), 50, 10);
}

TEST_F(SloMeterTest, ArrivalsThatAreNotAnnouncedAreUnknown) {
  EXPECT_LT(meter_.arrivals(now_), 0) << "no process";
  run(300ms, 5);
  EXPECT_LT(meter_.arrivals(now_), 0);
  EXPECT_EQ(meter_.backlog(), 0u);
}

TEST_F(SloMeterTest, AProcessThatDiesTakesItsNumbersAlong) {
  run(500ms, 5);
  look(5, {});
  EXPECT_EQ(meter_.take(now_, 1).processes, 0u);
}

}  // namespace
}  // namespace gpushare
