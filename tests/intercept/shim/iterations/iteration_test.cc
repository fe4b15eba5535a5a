// SPDX-License-Identifier: Apache-2.0
// The recogniser against modelled programs (iteration_programs.h) that say where their iterations
// begin. GPUSHARE_TABLE=1 prints the table of scores (iteration_score.h).
#include "intercept/shim/iterations/iteration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "tests/intercept/shim/iterations/iteration_programs.h"
#include "tests/intercept/shim/iterations/iteration_score.h"

namespace gpushare::shim {
namespace {

bool wants_table() { return std::getenv("GPUSHARE_TABLE") != nullptr; }

TEST(Iteration, BoundariesOfEveryModelledProgramAreRight) {
  if (wants_table())
    std::printf("%-58s %8s %7s %7s %8s %8s %7s\n", "", "right", "missed", "invent.", "accuracy",
                "phases", "wrong");
  for (const Program& program : iterating_programs()) {
    Score score;
    for (uint64_t seed = kFirstSeed; seed <= kLastSeed; ++seed) add(score, program, seed);
    if (wants_table())
      std::printf("%-58s %8lu %7lu %7lu %7.2f%% %7.1f%% %7lu\n", program.name, score.right,
                  score.missed, score.invented, 100 * score.accuracy(), 100 * score.known(),
                  score.wrong_phases);
    EXPECT_GE(score.accuracy(), 0.99) << program.name;
    EXPECT_GE(score.known(), 0.9) << program.name;
    EXPECT_LE(score.wrong_phases * 100, score.phases) << program.name;
  }
}

TEST(Iteration, ProgramsWithoutIterationsAreNotTrusted) {
  for (const Program& program : aimless_programs()) {
    for (uint64_t seed = kFirstSeed; seed <= kLastSeed; ++seed) {
      const auto recogniser = std::make_unique<IterationRecogniser>();
      uint64_t invented = 0, launches = 0;
      float most = 0;
      for (const ProgramEvent& event : program.record(seed)) {
        invented += feed(*recogniser, event);
        launches += event.kind == ProgramEvent::Kind::kLaunch;
        most = std::max(most, recogniser->report().confidence);
      }
      if (wants_table())
        std::printf("%-58s %8lu launches, confidence at most %.2f\n", program.name, launches,
                    static_cast<double>(most));
      EXPECT_EQ(invented, 0U) << program.name;
      EXPECT_LT(most, IterationRecogniser::kTrusted) << program.name;
    }
  }
}

std::vector<bool> boundaries(const std::vector<ProgramEvent>& events) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  std::vector<bool> result;
  for (const ProgramEvent& event : events) result.push_back(feed(*recogniser, event));
  return result;
}

// Only the events count, and not how fast the program runs or which handles the driver gave its
// streams.
TEST(Iteration, NeitherSpeedNorHandlesChangeTheBoundaries) {
  for (const Program& program : iterating_programs()) {
    auto events = program.record(7);
    const std::vector<bool> before = boundaries(events);
    for (ProgramEvent& event : events) {
      event.at_ns = event.at_ns * 3 + 12345;
      event.stream = event.stream * 0x1000 + 0x7F0012345000;
    }
    EXPECT_EQ(boundaries(events), before) << program.name;
  }
}

void expect_alike(const IterationReport& one, const IterationReport& other) {
  EXPECT_EQ(one.count, other.count);
  EXPECT_EQ(one.ended, other.ended);
  EXPECT_EQ(one.busy_sum_ns, other.busy_sum_ns);
  EXPECT_EQ(one.period_sum_ns, other.period_sum_ns);
  EXPECT_EQ(one.confidence, other.confidence);
  EXPECT_EQ(one.mean_ns, other.mean_ns);
  EXPECT_EQ(one.p99_ns, other.p99_ns);
  EXPECT_EQ(one.launches, other.launches);
  EXPECT_EQ(one.phase, other.phase);
}

TEST(Iteration, LookingAtLaunchesTogetherChangesNoAnswer) {
  std::vector<Program> programs(iterating_programs().begin(), iterating_programs().end());
  programs.insert(programs.end(), aimless_programs().begin(), aimless_programs().end());
  for (const Program& program : programs) {
    SCOPED_TRACE(program.name);
    const auto at_once = std::make_unique<IterationRecogniser>(0);
    const auto together = std::make_unique<IterationRecogniser>();
    for (const ProgramEvent& event : program.record(kFirstSeed)) {
      const bool begins = feed(*at_once, event);
      ASSERT_EQ(feed(*together, event), begins);
      if (begins) expect_alike(at_once->report(), together->report());
    }
    if (HasFailure()) return;
  }
}

// A second program in the same process (another cell of a notebook) is learned like the first.
TEST(Iteration, ANewLoopAfterAnotherIsRecognisedAgain) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  const auto programs = iterating_programs();
  uint64_t seed = 20;
  for (const Program& program : {programs[5], programs[0], programs[15], programs[1]}) {
    uint64_t all = 0, right = 0, begun = 0;
    for (const ProgramEvent& event : program.record(++seed)) {
      const bool is_reported = feed(*recogniser, event);
      begun += event.begins;
      if (begun <= 60) continue;
      all += event.begins || is_reported;
      right += event.begins && is_reported;
    }
    EXPECT_GE(static_cast<double>(right), 0.99 * static_cast<double>(all)) << program.name;
  }
}

// A loader with its own stream copies there, and the working stream is made to wait for it. A
// metric is read back in the middle of the iteration, where none begins.
TEST(Iteration, InputOnAnotherStreamCountsWhereTheWorkingStreamWaitsForIt) {
  constexpr uint64_t kWork = 1, kLoader = 2;
  const auto recogniser = std::make_unique<IterationRecogniser>();
  uint64_t now = 1'000'000'000;
  uint32_t right = 0, wrong = 0;
  for (uint32_t step = 0; step < 200; ++step) {
    recogniser->copy(CopyWay::kToGpu, 1 << 20, false, kLoader, now);
    recogniser->ordered(kWork);
    for (uint64_t i = 0; i < 60; ++i) {
      if (i == 40) recogniser->waited(kWork, now);
      const bool begins = recogniser->launch(0x100 + i % 45 * 64, 100, kWork, now += 10'000) &&
                          recogniser->is_trusted();
      if (step < 16) continue;
      right += begins && i == 0;
      wrong += begins && i != 0;
    }
  }
  EXPECT_EQ(right, 184U);
  EXPECT_EQ(wrong, 0U);
}

TEST(Iteration, NothingIsKnownOfAProgramThatDoesNothing) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  recogniser->waited(IterationRecogniser::kAllStreams, 5);
  recogniser->copy(CopyWay::kToGpu, 1 << 30, true, 1, 6);
  const IterationReport report = recogniser->report();
  EXPECT_EQ(report.count, 0U);
  EXPECT_EQ(report.confidence, 0);
  EXPECT_EQ(report.p99_ns, 0U);
  EXPECT_EQ(report.phase, Phase::kUnknown);
}

TEST(Iteration, AKernelLaunchedForEverIsNoIteration) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  for (uint64_t i = 0; i < 100'000; ++i) {
    EXPECT_FALSE(recogniser->launch(0x7F00, 132, 1, i * 5000) && recogniser->is_trusted());
  }
}

// Tells the recogniser as little as it asks for.
class Teller {
 public:
  explicit Teller(uint64_t launches_before = 0) : launches_(launches_before) {}
  // Returns true if it begins an iteration and the recogniser trusts itself.
  bool launch(uint64_t function) {
    now_ += 5000;
    if (recogniser_->is_asleep() && ++launches_ % IterationRecogniser::kLaunchesPerLook != 0)
      return false;
    ++told_;
    return recogniser_->launch(function, 132, 1, now_) && recogniser_->is_trusted();
  }
  void give_input() {
    if (!recogniser_->is_asleep()) recogniser_->copy(CopyWay::kToGpu, 1 << 20, false, 1, now_);
  }
  // How many iterations begin in so many of 50 launches of these functions.
  int train(int iterations, uint64_t functions) {
    int begun = 0;
    for (int i = 0; i < iterations; ++i) {
      give_input();
      for (uint64_t k = 0; k < 50; ++k) begun += launch(functions + k % 40 * 64);
    }
    return begun;
  }
  // Launches of eight functions at random.
  void wander(uint64_t launches) {
    for (uint64_t i = 0; i < launches; ++i) launch(0x9000 + draw_() % 8 * 64);
  }
  bool is_asleep() const { return recogniser_->is_asleep(); }
  uint64_t told() const { return told_; }

 private:
  std::unique_ptr<IterationRecogniser> recogniser_ = std::make_unique<IterationRecogniser>();
  std::minstd_rand draw_{1};
  uint64_t launches_, told_ = 0, now_ = 1'000'000'000;
};

TEST(Iteration, AProgramWithoutIterationsIsHardlyLookedAt) {
  Teller teller;
  teller.wander(60'000);
  EXPECT_FALSE(teller.is_asleep()) << "it has not had its chance yet";
  teller.wander(60'000);
  EXPECT_TRUE(teller.is_asleep());
  const uint64_t before = teller.told();
  teller.wander(4'000'000);
  const uint64_t told = teller.told() - before;
  EXPECT_GT(told, 4'000'000U / 20) << "now and then it is looked at";
  EXPECT_LT(told, 4'000'000U / 10);
}

TEST(Iteration, NewFunctionsWakeTheRecogniserAtOnce) {
  for (uint64_t phase : {0, 13, 50, 63}) {  // which one in 64 launches it is told of
    Teller teller(phase);
    teller.wander(200'000);
    ASSERT_TRUE(teller.is_asleep());
    teller.train(32, 0x100000);
    EXPECT_FALSE(teller.is_asleep());
    EXPECT_EQ(teller.train(100, 0x100000), 100);
  }
}

// The functions are the same as before, so it notices only because it looks again.
TEST(Iteration, ALoopOfKnownFunctionsIsFoundInTheEnd) {
  Teller teller;
  std::minstd_rand draw{7};
  for (int i = 0; i < 200'000; ++i) teller.launch(0x100000 + draw() % 40 * 64);
  ASSERT_TRUE(teller.is_asleep());
  int waited = 0;
  while (waited < 600'000 / 50 && teller.train(1, 0x100000) == 0) ++waited;
  EXPECT_GT(waited, 100'000 / 50) << "it slept";
  EXPECT_EQ(teller.train(100, 0x100000), 100);
}

TEST(Iteration, AProgramWithIterationsIsAlwaysLookedAt) {
  Teller teller;
  teller.train(40, 0x100000);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(teller.train(1, 0x100000), 1) << i;
    ASSERT_FALSE(teller.is_asleep()) << i;
  }
}

// Steps of 40 kernels, 10 ms apart; the GPU works for 3 ms of that.
TEST(Iteration, MeasuresPeriodAndBusyTime) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  uint64_t now = 1'000'000'000;
  for (uint32_t step = 0; step < 300; ++step) {
    const uint64_t began = now;
    recogniser->copy(CopyWay::kToGpu, 4096, false, 1, now);
    for (uint64_t i = 0; i < 40; ++i) recogniser->launch(0x100 + i * 64, 100, 1, now += 10'000);
    recogniser->copy(CopyWay::kFromGpu, 64, false, 1, now);
    now = began + 3'000'000;
    recogniser->waited(1, now);
    now = began + (step % 50 == 49 ? 40'000'000 : 10'000'000);
  }
  const IterationReport report = recogniser->report();
  EXPECT_GT(report.count, 280U);
  EXPECT_NEAR(static_cast<double>(report.mean_ns), 10.4e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(report.busy_ns), 3.0e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(report.p99_ns), 40e6, 5e6);
  EXPECT_EQ(report.launches, 40);
}

TEST(IterationTimes, PercentileIsNeverBelowTheValueAndAtMostAnEighthAbove) {
  for (uint64_t value : {1ULL, 7ULL, 1'000ULL, 123'456ULL, 9'999'999ULL, 60'000'000'000ULL}) {
    IterationTimes times;
    for (int i = 0; i < 5'000; ++i) times.add(value, value);
    EXPECT_GE(times.p99_ns(), value);
    EXPECT_LE(times.p99_ns(), std::max<uint64_t>(16, value + value / 8 + 1));
  }
}

TEST(IterationTimes, TheLongestIsAnyLongerOne) {
  IterationTimes times;
  for (int i = 0; i < 100; ++i) times.add(~0ULL, ~0ULL - i);
  EXPECT_EQ(times.mean_ns(), IterationTimes::kLongestNs);
  EXPECT_EQ(times.busy_ns(), IterationTimes::kLongestNs);
  EXPECT_EQ(times.p99_ns(), IterationTimes::kLongestNs + 1);
}

}  // namespace
}  // namespace gpushare::shim
