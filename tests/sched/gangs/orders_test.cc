// SPDX-License-Identifier: Apache-2.0
// Jobs on several GPUs under the policies that order jobs: they have their turn on all of them at
// once, and nobody starves or is overtaken by a lower class because of the plans of other GPUs. A
// whole agent on simulated GPUs in virtual time; no program has the shim.
#include <gtest/gtest.h>

#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::GangRig;

constexpr double kHundredth = 0.01;

// Turns that are long beside a step.
constexpr const char* kLongTurns = "turn_ms = 200\n";
constexpr const char* kPatient = "turn_ms = 200\npatience_s = 2\n";

// GPUs that all have the same policy and options.
class OrderedRig : public GangRig {
 public:
  OrderedRig(uint32_t gpus, const std::string& policy, const std::string& options = kLongTurns)
      : GangRig(gpus) {
    std::string config;
    for (uint32_t gpu = 0; gpu < gpus; ++gpu)
      config += "[gpu." + std::to_string(gpu) + "]\npolicy = '" + policy + "'\n" + options;
    start(config);
  }
  // The agent looks at turns between its steps.
  void pass(Nanos time) {
    for (; time > Nanos{}; time -= 1ms) {
      run_for(1ms);
      if (scheduler->look_at_turns()) step();
    }
  }
  // A busy program, on the GPU alone.
  std::size_t add_neighbour(const std::string& tenant, const std::vector<Setting>& settings,
                            uint32_t gpu) {
    add_busy(tenant, settings, gpu);
    return programs.size() - 1;
  }
  // In the next `time`, and what the driver's calls add to it: of each job the steps as a part of
  // those that it makes alone, and of each program that is in none its part of the time.
  struct Rates {
    std::vector<double> jobs, programs;
  };
  Rates rates(Nanos time) {
    std::vector<uint64_t> steps;
    std::vector<Nanos> worked;
    const auto executed = [&](std::size_t i) {
      return work[i] == 0 ? Nanos{} : programs[i]->executed(work[i]);
    };
    for (const auto& job : jobs) steps.push_back(job->steps());
    for (std::size_t i = 0; i < programs.size(); ++i) worked.push_back(executed(i));
    const Time began = clock.now();
    pass(time);
    time = clock.now() - began;
    Rates rates;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      rates.jobs.push_back(static_cast<double>(jobs[i]->steps() - steps[i]) *
                           std::chrono::duration<double>(jobs[i]->alone()) / time);
    for (std::size_t i = 0; i < programs.size(); ++i)
      rates.programs.push_back(std::chrono::duration<double>(executed(i) - worked[i]) / time);
    return rates;
  }
};

// --- jobs on two GPUs each, of three in all, so that only one can run at a time

struct RingRow {
  const char *description, *policy, *options;
  double least;  // of its steps alone, that each of the three makes
};
class Ring : public ::testing::TestWithParam<RingRow> {};

TEST_P(Ring, NobodyStarves) {
  OrderedRig rig(3, GetParam().policy, GetParam().options);
  for (uint32_t i = 0; i < 3; ++i) rig.add_job("job" + std::to_string(i), {}, {i, (i + 1) % 3});
  rig.pass(3s);
  const auto rates = rig.rates(30s);
  double sum = 0;
  for (const double rate : rates.jobs) {
    EXPECT_GE(rate, GetParam().least);
    sum += rate;
  }
  EXPECT_GE(sum, 0.96) << "and no GPU idles for it";
}

// `srtf` and `fifo` have a third job wait until the first ends, where nobody has set a patience of
// 2 s: then each has a turn of 0.2 s once in 2.4 s at least.
INSTANTIATE_TEST_SUITE_P(All, Ring,
                         ::testing::Values(RingRow{"turns", "turns", kLongTurns, 0.31},
                                           RingRow{"turns_patience", "turns", kPatient, 0.31},
                                           RingRow{"srtf_patience", "srtf", kPatient, 0.06},
                                           RingRow{"fifo_patience", "fifo", kPatient, 0.06}),
                         [](const auto& row) { return row.param.description; });

TEST(Orders, WhoWaitsInARingIsToldForWhom) {
  OrderedRig rig(3, "turns");
  for (uint32_t i = 0; i < 3; ++i) rig.add_job("job" + std::to_string(i), {}, {i, (i + 1) % 3});
  rig.pass(1s);
  int waiting = 0;
  for (int look = 0; look < 200; ++look) {
    rig.pass(5ms);
    for (uint32_t i = 0; i < 3; ++i) {
      const ProcessRecord record = rig.record(*rig.programs[2 * i], i);
      if (record.turn != TurnState::kStopped) continue;
      ++waiting;
      EXPECT_EQ(std::string_view(record.note).substr(0, 12), "turn of run-") << "job " << i;
      EXPECT_NE(std::string_view(record.note).find("(GPU "), std::string_view::npos);
    }
  }
  EXPECT_GT(waiting, 300) << "two of three wait nearly always";
}

// --- a job on both of two GPUs, beside a program on each

struct OrderedRow {
  const char* description;
  std::vector<Setting> job, others;
  double due;  // to the job
};
class OrderedBesidePrograms : public ::testing::TestWithParam<OrderedRow> {};

TEST_P(OrderedBesidePrograms, ItsStepsAreItsShare) {
  OrderedRig rig(2, "turns");
  rig.add_job("job", GetParam().job, {0, 1});
  for (const uint32_t gpu : {0U, 1U})
    rig.add_neighbour("other" + std::to_string(gpu), GetParam().others, gpu);
  rig.pass(3s);
  const auto rates = rig.rates(20s);
  EXPECT_NEAR(rates.jobs[0], GetParam().due, 2 * kHundredth);
  for (const std::size_t other : {2U, 3U})
    EXPECT_NEAR(rates.programs[other], 1 - GetParam().due, 2 * kHundredth);
}

INSTANTIATE_TEST_SUITE_P(
    All, OrderedBesidePrograms,
    ::testing::Values(OrderedRow{"one_to_one", {}, {}, 0.5},
                      OrderedRow{"two_to_one", {{"weight", "200"}}, {}, 2.0 / 3},
                      OrderedRow{"one_to_two", {}, {{"weight", "200"}}, 1.0 / 3}),
    [](const auto& row) { return row.param.description; });

// What it has received counts once, on however many GPUs it is.
TEST(Orders, OnFourGpusBesideOneProgramItHasHalf) {
  OrderedRig rig(4, "turns");
  rig.add_job("job", {}, {0, 1, 2, 3});
  rig.add_neighbour("one", {}, 2);
  rig.pass(3s);
  EXPECT_NEAR(rig.rates(20s).jobs[0], 0.5, 2 * kHundredth);
}

// Under `srtf` the index of a job is asked for by the GPU time that it had on each of its GPUs,
// which is how lengths are learnt.
TEST(Orders, SrtfTakesTheAgeOfAJobForWhatItHadOnEachGpu) {
  OrderedRig rig(2, "srtf");
  rig.add_job("job", {}, {0, 1});
  rig.pass(4s);
  // Somebody of 5 s: younger than a job of 8 s and older than one of 4 s.
  const std::size_t other = rig.add_neighbour("other", {{"length_us", "9000000"}}, 0);
  rig.pass(200ms);
  EXPECT_GT(rig.rates(1s).jobs[0], 0.9);
  EXPECT_EQ(rig.record(*rig.programs[other]).turn, TurnState::kStopped);
}

// --- classes and patience

class OrdersOfEach : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, OrdersOfEach, ::testing::Values("fifo", "srtf", "turns"));

// The plan of GPU 0 knows nothing of the one that is `high`.
TEST_P(OrdersOfEach, AHigherClassOnOneOfItsGpusGoesBeforeIt) {
  OrderedRig rig(2, GetParam());
  rig.add_job("job", {}, {0, 1});
  rig.pass(100ms);
  const std::size_t normal = rig.add_neighbour("normal", {}, 0);
  const std::size_t high = rig.add_neighbour("high", {{"priority", "high"}}, 1);
  rig.pass(1s);
  const auto rates = rig.rates(5s);
  EXPECT_GT(rates.programs[high], 0.98);
  EXPECT_GT(rates.programs[normal], 0.98) << "GPU 0 does not wait for a job that cannot run";
  EXPECT_LT(rates.jobs[0], 0.01);
}

TEST_P(OrdersOfEach, AJobOfAHigherClassGoesBeforeProgramsOnAllOfItsGpus) {
  OrderedRig rig(2, GetParam());
  const std::size_t one = rig.add_neighbour("one", {}, 0);
  const std::size_t two = rig.add_neighbour("two", {}, 1);
  rig.pass(100ms);
  rig.add_job("job", {{"priority", "high"}}, {0, 1});
  rig.pass(1s);
  const auto rates = rig.rates(5s);
  EXPECT_GT(rates.jobs[0], 0.97);
  EXPECT_LT(rates.programs[one] + rates.programs[two], 0.02);
}

// It came last, so that without patience `fifo` lets it wait until one of them has ended.
TEST_P(OrdersOfEach, PatienceGivesAJobATurnOnAllOfItsGpus) {
  OrderedRig rig(2, GetParam(), kPatient);
  for (const uint32_t gpu : {0U, 1U})
    rig.add_neighbour("other" + std::to_string(gpu), {{"length_us", "60000000"}}, gpu);
  rig.pass(500ms);
  rig.add_job("job", {{"length_us", "600000000"}}, {0, 1});
  rig.pass(3s);
  EXPECT_GE(rig.rates(20s).jobs[0], 0.06);
}

// --- caps

TEST_P(OrdersOfEach, ACapHoldsAndTheOthersHaveWhatItLeaves) {
  OrderedRig rig(2, GetParam(), "turn_ms = 25\n");
  rig.add_job("job", {{"max", "40%"}, {"length_us", "60000000"}}, {0, 1});
  for (const uint32_t gpu : {0U, 1U})
    rig.add_neighbour("other" + std::to_string(gpu), {{"length_us", "600000000"}}, gpu);
  rig.pass(3s);
  const auto rates = rig.rates(20s);
  // Its steps: a hand-over in the midst of one is charged to it. How many there are of those
  // depends on how its turns fall into the periods of its cap.
  EXPECT_NEAR(rates.jobs[0], 0.4, 1.5 * kHundredth);
  // Forty hand-overs in a second cost 0.6 ms each.
  for (const std::size_t other : {2U, 3U}) EXPECT_NEAR(rates.programs[other], 0.6, 3 * kHundredth);
}

// In a turn that is as long as the cap's period it earns tokens while it spends them; those are not
// lost because its bucket was full when it began.
TEST(Orders, ACapHoldsInLongTurns) {
  for (const char* turn : {"turn_ms = 25\n", "turn_ms = 100\n"}) {
    OrderedRig rig(1, "turns", turn);
    const std::size_t capped = rig.add_neighbour("capped", {{"max", "40%"}}, 0);
    const std::size_t other = rig.add_neighbour("other", {}, 0);
    rig.pass(3s);
    const auto rates = rig.rates(20s);
    EXPECT_NEAR(rates.programs[capped], 0.4, kHundredth) << turn;
    EXPECT_NEAR(rates.programs[other], 0.6, 2 * kHundredth) << turn;
  }
}

}  // namespace
}  // namespace gpushare
