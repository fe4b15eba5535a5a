// SPDX-License-Identifier: Apache-2.0
// Who makes little use of the turns that it has beside a gang, or as one, gives them up within a
// few seconds, and has them again when it works again. A whole agent on simulated GPUs in virtual
// time. In a turn of its own a process is alone on its GPU, where the switch log cannot tell busy
// from idle.
#include <gtest/gtest.h>

#include "sched/jobs/gang_turns.h"
#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace test;

// Kernels with pauses between them, of which each may be changed.
class Worker {
 public:
  Worker(sim::Program& program, Nanos kernel, Nanos pause)
      : kernel(kernel), pause(pause), program_(program) {
    launch();
  }

  Nanos kernel, pause;
  Nanos done{};  // of kernels that have ended

 private:
  void launch() {
    const Nanos length = kernel;
    program_.machine.then[program_.kernel(length)] = [this, length](const sim::Completion&) {
      done += length;
      sim::Model& model = program_.machine.model;
      model.call_at(model.now() + pause, [this] { launch(); });
    };
  }

  sim::Program& program_;
};

TEST(Slackers, ANeighbourThatFallsToAFortiethGivesItsTurnsUpAndHasThemBack) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 1});
  Worker other(rig.add("other", {}, 0), 10ms, 0ms);
  rig.run_for(4s);
  EXPECT_NEAR(rig.rate(job, 2s), 0.5, 0.04);
  for (int i = 0; i < 3; ++i) {
    other.kernel = 500us;
    other.pause = 20ms;
    rig.run_for(kGivenUp);
    EXPECT_GT(rig.rate(job, 3s), 0.9) << i;
    const uint64_t freezes = rig.record(*rig.programs[2]).freezes;
    rig.run_for(2s);
    EXPECT_EQ(rig.record(*rig.programs[2]).freezes, freezes) << "it waits for no turn " << i;
    other.kernel = 10ms;
    other.pause = 0ms;
    rig.run_for(kBack);
    const Nanos before = other.done;
    EXPECT_NEAR(rig.rate(job, 3s), 0.5, 0.04) << i;
    EXPECT_NEAR(std::chrono::duration<double>(other.done - before) / 3s, 0.5, 0.03) << i;
  }
}

// Of several that have their turn together each uses a part of it only.
TEST(Slackers, NoneOfSeveralBusyNeighboursIsTakenForOne) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 1});
  for (const char* name : {"one", "two", "three"}) rig.add_busy(name, {}, 0);
  rig.run_for(10s);
  const uint64_t before = job.steps();
  const auto shares = rig.measure(6s);
  EXPECT_GE(GangRig::rate_since(job, before, 6s), 0.95 * 0.25);
  for (const std::size_t other : {2U, 3U, 4U}) EXPECT_NEAR(shares[other], 0.25, 0.03);
}

TEST(Slackers, SeveralNeighboursThatSlackenGiveTheirTurnsUp) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 1});
  Worker one(rig.add("one", {}, 0), 10ms, 0ms), two(rig.add("two", {}, 0), 10ms, 0ms);
  rig.run_for(5s);
  for (Worker* worker : {&one, &two}) {
    worker->kernel = 500us;
    worker->pause = 20ms;
  }
  rig.run_for(2 * kGivenUp);  // until then each seems to use what the other one leaves resident
  EXPECT_GT(rig.rate(job, 3s), 0.85);
}

constexpr sim::DataParallel::Step kFewSteps{.own = 500us, .together = 500us, .host = 40ms};

TEST(Slackers, AGangThatDoesLittleTakesNobodysTime) {
  GangRig rig(2);
  rig.start();
  rig.add_job("job", {}, {0, 1}, kFewSteps);
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(kGivenUp + 1s);
  const uint64_t freezes = rig.record(*rig.programs[2]).freezes;
  const auto shares = rig.measure(4s);
  for (const std::size_t other : {2U, 3U}) EXPECT_GT(shares[other], 0.9);
  EXPECT_EQ(rig.record(*rig.programs[2]).freezes, freezes);
}

struct Busy {
  const char* description;
  sim::DataParallel::Step step;
};
class GangThatSlackens : public ::testing::TestWithParam<Busy> {};

TEST_P(GangThatSlackens, GivesItsTurnsUpAndHasThemBack) {
  GangRig rig(2);
  rig.start();
  sim::DataParallel& first = rig.add_job("job", {}, {0, 1}, GetParam().step);
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(4s);
  EXPECT_NEAR(rig.rate(first, 2s), 0.5, 0.05);
  first.stop();
  rig.run_for(50ms);
  const std::vector<sim::Program*> ranks{rig.programs[0].get(), rig.programs[1].get()};
  sim::DataParallel few(ranks, 11, kFewSteps);
  rig.run_for(kGivenUp);
  EXPECT_GT(rig.measure(3s)[2], 0.9);
  few.stop();
  rig.run_for(100ms);
  const sim::DataParallel again(ranks, 12, GetParam().step);
  rig.run_for(kBack);
  EXPECT_GE(rig.rate(again, 4s), 0.46);
}

INSTANTIATE_TEST_SUITE_P(
    All, GangThatSlackens,
    ::testing::Values(Busy{"a_training", {}},
                      // As a large model that answers: a step is short, and the host comes between.
                      Busy{"an_inference", {.own = 900us, .together = 100us, .host = 50us}}),
    [](const auto& row) { return row.param.description; });

// Two programs of one run that have nothing to do with each other are taken for a gang, which costs
// them and their neighbours next to nothing.
TEST(WrongGangs, ProgramsOfOneRunThatAreBusyApartHaveTheirShares) {
  GangRig rig(2);
  rig.start();
  const sim::Program& one = rig.add_busy("run", {}, 0);
  const sim::Program& two = rig.add_busy("run", {}, 1);
  rig.processes.add(one.process, "one");
  rig.processes.add(two.process, "two").parent = one.process.pid;
  (void)rig.tenants.begin_run(one.process, Time{1s}).value();
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(3s);
  for (const double share : rig.measure(5s)) EXPECT_GE(share, 0.98 * 0.5);
}

// Only one of them works.
TEST(WrongGangs, ProgramsOfOneRunOfWhichOneDoesLittleCostTheirNeighboursNothing) {
  GangRig rig(2);
  rig.start();
  const sim::Program& one = rig.add_busy("run", {}, 0);
  sim::Program& two = rig.add("run", {}, 1);
  const Worker light(two, 500us, 20ms);
  rig.processes.add(one.process, "one");
  rig.processes.add(two.process, "two").parent = one.process.pid;
  (void)rig.tenants.begin_run(one.process, Time{1s}).value();
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(kGivenUp + 3s);
  const auto shares = rig.measure(5s);
  EXPECT_GE(shares[0], 0.97 * 0.5);
  EXPECT_GE(shares[2], 0.97 * 0.5);
  EXPECT_GE(shares[3], 0.9);
}

// Without samples nobody could tell that one of them slackens.
TEST(GangTurns, WithoutSamplesOnlyWhoIsToldIsAGang) {
  for (const bool is_told : {false, true}) {
    GangTurns turns;
    std::vector<GangTurns::Seen> all;
    for (const uint32_t gpu : {0U, 1U})
      for (const uint32_t run : {7U, 8U + gpu})
        all.push_back({.process = {static_cast<pid_t>(10 * run + gpu), 1},
                       .gpu = gpu,
                       .job = {.run = run},
                       .wants_gpu = true,
                       .is_told = is_told && run == 7,
                       .is_sampled = false,
                       .used = 5ms,
                       .share = 0.5,
                       .target = 0.5});
    bool is_anybody_held = false;
    for (Time now{1s}; now < Time{3s}; now += 10ms) {
      turns.look(now, all);
      is_anybody_held |= turns.holds_anybody();
      EXPECT_TRUE(turns.wants_samples(0) && turns.wants_samples(1));
    }
    EXPECT_EQ(is_anybody_held, is_told);
  }
}

}  // namespace
}  // namespace gpushare
