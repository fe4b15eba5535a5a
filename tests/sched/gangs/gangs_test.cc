// SPDX-License-Identifier: Apache-2.0
// What a job on several GPUs is promised: its share of the steps that it makes alone, and the
// others theirs. A whole agent on simulated GPUs in virtual time.
#include <gtest/gtest.h>

#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::GangRig;
using test::JobOnTwoGpus;

constexpr double kLeast = 0.96;  // of the steps that are due
constexpr double kPoint = 0.01;

struct BesideRow {
  const char* description;
  std::vector<Setting> job;
  std::vector<Setting> others;
  double due;
};

class BesidePrograms : public ::testing::TestWithParam<BesideRow> {};

TEST_P(BesidePrograms, ItsStepsAreItsShare) {
  const BesideRow& row = GetParam();
  GangRig rig(2);
  rig.start();
  const auto& job = rig.add_job("job", row.job, {0, 1});
  rig.add_busy("one", row.others, 0);
  rig.run_for(3ms);
  rig.add_busy("two", row.others, 1);
  rig.run_for(3s);
  const std::size_t before = job.times_ms().size();
  const Nanos time = 5s;
  const uint64_t steps = job.steps();
  const auto used = [&](std::size_t program, uint32_t gpu) {
    return static_cast<double>(rig.record(*rig.programs[program], gpu).gpu_time_ns);
  };
  const std::vector earlier{used(0, 0), used(1, 1), used(2, 0), used(3, 1)};
  const auto shares = rig.measure(time);
  const double rate = GangRig::rate_since(job, steps, time);
  EXPECT_GE(rate, kLeast * row.due);
  for (const uint32_t gpu : {0U, 1U}) {
    const double rank = used(gpu, gpu) - earlier[gpu];
    const double other = used(2 + gpu, gpu) - earlier[2 + gpu];
    EXPECT_NEAR(other / (rank + other), 1 - row.due, kPoint);
    EXPECT_GE(shares[2 + gpu], (1 - row.due) * 0.96);
  }
  std::vector<double> times(job.times_ms().begin() + static_cast<ptrdiff_t>(before),
                            job.times_ms().end());
  std::ranges::sort(times);
  const double p99 = times.at(times.size() * 99 / 100);
  const double alone_ms = std::chrono::duration<double, std::milli>(job.alone()).count();
  EXPECT_LE(p99, alone_ms / row.due + (1 - row.due) * 150 + 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, BesidePrograms,
    ::testing::Values(BesideRow{"capped_at_40", {{"max", "40%"}}, {}, 0.4},
                      BesideRow{"one_to_one", {}, {}, 0.5},
                      BesideRow{"one_to_three", {{"weight", "100"}}, {{"weight", "300"}}, 0.25},
                      BesideRow{"three_to_one", {{"weight", "300"}}, {{"weight", "100"}}, 0.75}),
    [](const auto& row) { return row.param.description; });

// A neighbour that is out of tokens leaves its GPU to the job: nobody is held for it meanwhile.
struct CapsRow {
  const char* description;
  const char *job, *one, *two;  // caps
  double due, due_one, due_two;
};
class BesideCaps : public ::testing::TestWithParam<CapsRow> {};

TEST_P(BesideCaps, EachHasItsCapAndTheJobItsShareOfSteps) {
  const CapsRow& row = GetParam();
  GangRig rig(2);
  rig.start();
  const auto& job = rig.add_job("job", {{"max", row.job}}, {0, 1});
  rig.add_busy("one", {{"max", row.one}}, 0);
  rig.add_busy("two", {{"max", row.two}}, 1);
  rig.run_for(4s);
  const uint64_t before = job.steps();
  const Nanos time = 20s;
  const auto shares = rig.measure(time);
  EXPECT_GE(GangRig::rate_since(job, before, time), 0.95 * row.due);
  EXPECT_NEAR(shares[2], row.due_one, kPoint);
  EXPECT_NEAR(shares[3], row.due_two, 2 * kPoint);
}

INSTANTIATE_TEST_SUITE_P(
    All, BesideCaps,
    ::testing::Values(CapsRow{"job_and_both", "40%", "30%", "30%", 0.4, 0.3, 0.3},
                      CapsRow{"job_and_one", "40%", "30%", "max", 0.4, 0.3, 0.6},
                      CapsRow{"one", "max", "30%", "max", 0.5, 0.3, 0.5},
                      CapsRow{"both", "max", "30%", "30%", 0.7, 0.3, 0.3}),
    [](const auto& row) { return row.param.description; });

struct PairRow {
  const char* description;
  const char *first, *second;
  double due;
};
class TwoJobs : public ::testing::TestWithParam<PairRow> {};

TEST_P(TwoJobs, HaveTheirSharesOfSteps) {
  GangRig rig(2);
  rig.start();
  const auto& one = rig.add_job("one", {{"weight", GetParam().first}}, {0, 1});
  const auto& two = rig.add_job("two", {{"weight", GetParam().second}}, {0, 1});
  rig.run_for(3s);
  const uint64_t before = two.steps();
  const double rate = rig.rate(one, 20s);  // in which one step is less than a hundredth
  EXPECT_GE(rate, kLeast * GetParam().due);
  EXPECT_GE(static_cast<double>(two.steps() - before) * 0.03405 / 20,
            kLeast * (1 - GetParam().due));
}

INSTANTIATE_TEST_SUITE_P(All, TwoJobs,
                         ::testing::Values(PairRow{"one_to_one", "100", "100", 0.5},
                                           PairRow{"one_to_three", "100", "300", 0.25},
                                           PairRow{"three_to_one", "300", "100", 0.75}),
                         [](const auto& row) { return row.param.description; });

// A change of turns costs more where there are more GPUs, so that there are fewer; but a bucket
// holds what comes back in 100 ms.
struct PeriodRow {
  const char* description;
  std::vector<uint32_t> gpus;
  std::vector<Setting> job, others;
  double due, period_ms;
};
class Periods : public ::testing::TestWithParam<PeriodRow> {};

TEST_P(Periods, AreAsLongAsTheGpusAreManyAndBucketsAllow) {
  const PeriodRow& row = GetParam();
  GangRig rig(static_cast<uint32_t>(row.gpus.size()));
  rig.start();
  const auto& job = rig.add_job("job", row.job, row.gpus);
  for (const uint32_t gpu : row.gpus) {
    rig.add_busy("other" + std::to_string(gpu), row.others, gpu);
    rig.run_for(3ms);
  }
  rig.run_for(4s);
  const uint64_t freezes = rig.record(*rig.programs[0]).freezes;
  const double seconds = 20;
  EXPECT_GE(rig.rate(job, 20s), 0.93 * row.due);
  const double turns = seconds * 1000 / row.period_ms;
  EXPECT_NEAR(static_cast<double>(rig.record(*rig.programs[0]).freezes - freezes), turns,
              0.08 * turns);
}

INSTANTIATE_TEST_SUITE_P(
    All, Periods,
    ::testing::Values(PeriodRow{"two", {0, 1}, {}, {}, 0.5, 150},
                      PeriodRow{"four", {0, 1, 2, 3}, {}, {}, 0.5, 250},
                      PeriodRow{"capped", {0, 1, 2, 3}, {{"max", "40%"}}, {}, 0.4, 100},
                      PeriodRow{"beside_capped", {0, 1}, {}, {{"max", "70%"}}, 0.5, 100}),
    [](const auto& row) { return row.param.description; });

TEST(Gangs, AloneTheyAreLeftAlone) {
  JobOnTwoGpus rig;
  rig.run_for(1s);
  EXPECT_GE(rig.rate(rig.job, 3s), 0.99);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0U);
}

TEST(Gangs, ACappedOneThatIsAloneStopsOnAllItsGpusAtOnce) {
  GangRig rig(2);
  rig.start();
  const auto& job = rig.add_job("job", {{"max", "40%"}}, {0, 1});
  rig.run_for(3s);
  const double rate = rig.rate(job, 5s);
  EXPECT_GE(rate, kLeast * 0.4);
  EXPECT_LE(rate, 0.41);
}

// What its bucket is charged and the switch log does not show, as of work that is not believed to
// be none, leaves it less than what is owed to it: it is its cap that ends its turns.
TEST(Gangs, WhenItsCapEndsItsTurnTheOthersGoOn) {
  GangRig rig(2);
  rig.start();
  const auto& job = rig.add_job("job", {{"max", "40%"}}, {0, 1});
  rig.add_busy("one", {}, 0);
  rig.add_busy("two", {}, 1);
  const auto had_of = [&](int tenths) {  // seconds of the neighbours, on the poorer GPU
    double had[2] = {0, 0};
    for (int i = 0; i < tenths; ++i) {
      const auto shares = rig.measure(100ms);
      for (const uint32_t gpu : {0U, 1U}) {
        had[gpu] += shares[2 + gpu] / 10;
        rig.region->tenants[rig.tenants.find("job").value()].buckets[gpu].charge(2ms);
      }
    }
    return std::min(had[0], had[1]);
  };
  had_of(30);
  const uint64_t steps = job.steps();
  EXPECT_GE(had_of(50) / 5, 0.62 - 2 * kPoint);
  EXPECT_GE(static_cast<double>(job.steps() - steps) * 0.03405 / 5, kLeast * 0.38);
}

// In virtual time the driver's calls for four GPUs come one after the other, which costs it some.
TEST(Gangs, OnFourGpusBesideOneProgram) {
  GangRig rig(4);
  rig.start();
  const auto& job = rig.add_job("job", {}, {0, 1, 2, 3});
  rig.add_busy("one", {}, 2);
  rig.run_for(3s);
  const uint64_t before = job.steps();
  const auto shares = rig.measure(5s);
  EXPECT_GE(static_cast<double>(job.steps() - before) * 0.03405 / 5, 0.95 * 0.5);
  EXPECT_NEAR(shares[4], 0.5, 2 * kPoint);
}

// Of three jobs on two GPUs each, of three in all, only one can run at a time.
TEST(Gangs, ThoseThatOverlapInARingHaveAThirdEach) {
  GangRig rig(3);
  rig.start();
  for (uint32_t i = 0; i < 3; ++i) rig.add_job("job" + std::to_string(i), {}, {i, (i + 1) % 3});
  rig.run_for(3s);
  std::vector<uint64_t> before;
  for (const auto& job : rig.jobs) before.push_back(job->steps());
  rig.run_for(6s);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(rig.jobs[i]->steps() - before[i]) * 0.03405 / 6, 1.0 / 3, 0.03);
}

// The two outer ones share no GPU, and have their turns at the same time.
TEST(Gangs, ThoseInAChainHaveHalfEach) {
  GangRig rig(4);
  rig.start();
  for (uint32_t i = 0; i < 3; ++i) rig.add_job("job" + std::to_string(i), {}, {i, i + 1});
  rig.run_for(3s);
  std::vector<uint64_t> before;
  for (const auto& job : rig.jobs) before.push_back(job->steps());
  rig.run_for(6s);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_GE(static_cast<double>(rig.jobs[i]->steps() - before[i]) * 0.03405 / 6, kLeast * 0.5);
}

TEST(Gangs, StatusSaysWhoseTurnItIs) {
  JobOnTwoGpus rig;
  rig.add_busy("one", {}, 0);
  rig.run_for(1s);
  std::set<std::string> notes;
  std::set<ProcessState> states;
  for (int i = 0; i < 100; ++i) {
    rig.run_for(5ms);
    for (const std::size_t program : {0U, 2U}) {
      notes.insert(rig.record(*rig.programs[program]).note);
      states.insert(rig.record(*rig.programs[program]).state);
    }
  }
  EXPECT_TRUE(notes.contains("gang turn of run-100"));
  EXPECT_TRUE(notes.contains("waits for its turn on all of its GPUs"));
  EXPECT_TRUE(states.contains(ProcessState::kFrozenTurn));
}

TEST(Gangs, OneThatHasNoWorkOnAGpuLendsItsTimeThere) {
  GangRig rig(3);
  rig.start();
  rig.add_job("job", {}, {0, 1});
  const sim::Program& third = rig.add("job", {}, 2);
  rig.processes.add(third.process, "rank").parent = rig.programs[0]->process.pid;
  rig.add_busy("one", {}, 0);
  rig.add_busy("two", {}, 2);
  rig.run_for(2s);
  const uint64_t freezes = rig.record(*rig.programs[4], 2).freezes;
  EXPECT_GT(rig.measure(3s)[4], 0.98) << "the job's process there does nothing";
  EXPECT_EQ(rig.record(*rig.programs[4], 2).freezes, freezes);
}

TEST(Gangs, WhenItEndsItsWorkTheOthersHaveAll) {
  JobOnTwoGpus rig;
  rig.add_busy("one", {}, 0);
  rig.run_for(2s);
  rig.job.stop();
  rig.run_for(2s);
  EXPECT_GT(rig.measure(2s)[2], 0.97);
}

TEST(Gangs, WhenTheOthersEndTheirWorkItHasAll) {
  JobOnTwoGpus rig;
  sim::Program& one = rig.add_busy("one", {}, 0);
  rig.run_for(2s);
  rig.machine.model.stop(one.client, rig.work[2]);
  rig.run_for(1s);
  EXPECT_GE(rig.rate(rig.job, 2s), 0.98);
}

// A program of the class `high` is served as it is beside anything else.
TEST(Gangs, AHighNeighbourNeverWaitsForATurn) {
  JobOnTwoGpus rig;
  rig.add_busy("one", {}, 0);
  rig.add_busy("two", {}, 1);
  const sim::PeriodicKernel high(rig.add("high", {{"priority", "high"}}, 0), 100us, 5ms);
  rig.run_for(5s);
  EXPECT_GT(high.samples(), 500U);
  EXPECT_LE(high.percentile(0.99), 400);
}

TEST(Gangs, IdleWorkBesideItHasWhatIsLeft) {
  JobOnTwoGpus rig;
  rig.add_busy("idle", {{"priority", "idle"}}, 0);
  rig.run_for(2s);
  EXPECT_GE(rig.rate(rig.job, 3s), 0.93);
}

TEST(Gangs, AProgramThatMakesLittleUseOfItsShareIsNotHeld) {
  JobOnTwoGpus rig;
  const sim::PeriodicKernel light(rig.add("light", {}, 0), 500us, 20ms);
  rig.run_for(5s);
  EXPECT_EQ(rig.record(*rig.programs[2]).state, ProcessState::kRunning)
      << rig.record(*rig.programs[2]).share_permille << " of "
      << rig.record(*rig.programs[2]).target_permille;
  const uint64_t freezes = rig.record(*rig.programs[2]).freezes;
  rig.run_for(3s);
  EXPECT_EQ(rig.record(*rig.programs[2]).freezes, freezes);
}

// In its own turn it is alone on its GPU, where the switch log cannot tell how little it does.
TEST(Gangs, AProgramThatSlackensGivesItsTurnsUp) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 1});
  sim::Program& other = rig.add("other", {}, 0);
  std::optional<sim::PeriodicKernel> light;
  rig.machine.then[other.kernel(4s)] = [&](const sim::Completion&) {
    light.emplace(other, 500us, 20ms);
  };
  rig.run_for(5s);
  ASSERT_FALSE(light);
  EXPECT_NEAR(rig.rate(job, 2s), 0.5, 0.05);
  rig.run_for(8s);
  ASSERT_TRUE(light);
  EXPECT_GT(rig.rate(job, 5s), 0.9);
}

TEST(Gangs, AnAgentThatDiesInATurnLeavesEverybodyRunning) {
  for (const Nanos when : {Nanos(0), Nanos(13ms), Nanos(31ms), Nanos(57ms)}) {
    JobOnTwoGpus rig;
    rig.add_busy("one", {}, 0);
    rig.add_busy("two", {}, 1);
    rig.run_for(3s + when);
    rig.kill();
    EXPECT_GT(rig.ledger_entries(), 0U);
    (void)recover(rig.gpu, *rig.region, rig.processes);
    EXPECT_EQ(rig.ledger_entries(), 0U);
    const uint64_t before = rig.job.steps();
    const auto shares = rig.measure(2s);
    EXPECT_GT(rig.job.steps(), before);
    for (const std::size_t other : {2U, 3U}) EXPECT_GT(shares[other], 0.3);
  }
}

TEST(Gangs, WhatTheUserFreezesStaysFrozenAndHoldsNobodyElse) {
  JobOnTwoGpus rig;
  rig.add_busy("one", {}, 0);
  rig.run_for(1s);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[1]->process, true));
  rig.run_for(1s);
  EXPECT_EQ(rig.record(*rig.programs[1], 1).state, ProcessState::kFrozenUser);
  EXPECT_GT(rig.measure(1s)[2], 0.4);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[1]->process, false));
  rig.run_for(1s);
  EXPECT_GE(rig.rate(rig.job, 3s), kLeast * 0.5);
}

// Two programs that were started apart, one on each GPU, meet in every step. By slices they make
// fewer steps than are due.
double rate_of_ranks_of_two_runs(std::string_view config, const std::vector<Setting>& settings) {
  GangRig rig(2);
  rig.start(config);
  sim::Program& one = rig.add("ranks", settings, 0);
  sim::Program& two = rig.add("ranks", settings, 1);
  rig.processes.add(one.process, "rank");
  rig.processes.add(two.process, "rank");
  (void)rig.tenants.begin_run(one.process, Time{1s}).value();
  (void)rig.tenants.begin_run(two.process, Time{1s}).value();
  const sim::DataParallel job({&one, &two}, 1);
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(3s);
  return rig.rate(job, 5s);
}

TEST(Gangs, ATenantThatSaysSoIsOneWhicheverRunsItIsOf) {
  for (const char* config : {"[agent]\ngangs = \"off\"\n", ""}) {
    EXPECT_LT(rate_of_ranks_of_two_runs(config, {}), 0.45) << config;
    EXPECT_NEAR(rate_of_ranks_of_two_runs(config, {{"gang", "true"}}), 0.5, 0.03) << config;
  }
}

TEST(Gangs, ATenantThatSaysSoIsNone) {
  GangRig rig(2);
  rig.start();
  const auto& job = rig.add_job("job", {{"gang", "false"}}, {0, 1});
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(3s);
  EXPECT_LT(rig.rate(job, 3s), 0.45);
  EXPECT_EQ(rig.record(*rig.programs[2]).freezes, 0u);
}

TEST(Gangs, NobodyIsHeldWhereTheFileDoesNotWantThem) {
  GangRig rig(2);
  rig.start("[agent]\ngangs = \"off\"\n");
  rig.add_job("job", {}, {0, 1});
  rig.add_busy("one", {}, 0);
  rig.run_for(2s);
  for (const std::size_t program : {0U, 2U})
    EXPECT_EQ(rig.record(*rig.programs[program]).freezes, 0U);
}

}  // namespace
}  // namespace gpushare
