// SPDX-License-Identifier: Apache-2.0
// Ranks that do not keep to what a gang expects: they die in a collective, are stopped, come later,
// share a GPU; and neighbours that come and go all the time. A whole agent on simulated GPUs in
// virtual time.
#include <gtest/gtest.h>

#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace test;

// And a busy program of another tenant on each GPU.
struct JobAndOthers : test::JobOnTwoGpus {
  explicit JobAndOthers(const std::vector<Setting>& settings = {}) : JobOnTwoGpus(settings) {
    for (const uint32_t gpu : {0U, 1U}) add_busy("other", {}, gpu);
    run_for(4s);
  }
  void end(std::size_t program) { machine.model.close_client(programs[program]->client); }
};

// Its peer waits on its GPU for ever, and is one among others there.
TEST(UnrulyRanks, OneThatIsKilledInACollectiveTakesNobodysTime) {
  JobAndOthers rig;
  EXPECT_NEAR(rig.rate(rig.job, 2s), 0.5, 0.03);
  rig.end(0);
  rig.run_for(kGivenUp);
  auto shares = rig.measure(4s);
  EXPECT_GT(shares[2], 0.98);
  EXPECT_NEAR(shares[3], 0.5, 0.02);
  rig.end(1);
  rig.run_for(1s);
  shares = rig.measure(2s);
  EXPECT_GT(shares[2], 0.98);
  EXPECT_GT(shares[3], 0.98);
}

TEST(UnrulyRanks, AllOnOneOfItsGpusMayEndAtOnce) {
  JobAndOthers rig({{"max", "40%"}});
  rig.end(0);
  rig.end(2);
  rig.run_for(kGivenUp);
  EXPECT_GT(rig.measure(4s)[3], 0.57);
}

TEST(UnrulyRanks, OneThatIsStoppedLendsItsGpuAndHasItBack) {
  JobAndOthers rig;
  for (int i = 0; i < 2; ++i) {
    rig.job.hold(0);
    rig.run_for(kGivenUp);
    const auto shares = rig.measure(3s);
    EXPECT_GT(shares[2], 0.95) << i;
    EXPECT_GE(shares[3], 0.48) << i;
    rig.job.go_on();
    rig.run_for(kBack);
    EXPECT_GE(rig.rate(rig.job, 4s), 0.96 * 0.5) << i;
  }
}

TEST(UnrulyRanks, AJobThatGrowsIsHeldTogether) {
  GangRig rig(3);
  rig.start();
  sim::DataParallel& two = rig.add_job("job", {}, {0, 1});
  for (const uint32_t gpu : {0U, 1U, 2U}) rig.add_busy("other", {}, gpu);
  rig.run_for(4s);
  EXPECT_GE(rig.rate(two, 4s), 0.96 * 0.5);
  two.stop();
  rig.run_for(100ms);
  sim::Program& late = rig.add("job", {}, 2);
  rig.processes.add(late.process, "rank").parent = rig.programs[0]->process.pid;
  const sim::DataParallel three({rig.programs[0].get(), rig.programs[1].get(), &late}, 9);
  rig.run_for(kBack);
  EXPECT_GE(rig.rate(three, 8s), 0.96 * 0.5);
  const auto shares = rig.measure(8s);
  for (const std::size_t other : {2U, 3U, 4U}) EXPECT_NEAR(shares[other], 0.5, 0.02);
}

// Of which each waits for the other in its collective, a slice after the other, also when alone.
TEST(UnrulyRanks, TwoOnOneGpuHaveTheJobsShareOfTheirStepsAlone) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 0, 1});
  rig.run_for(2s);
  const double alone = rig.rate(job, 5s);
  for (const uint32_t gpu : {0U, 1U}) rig.add_busy("other", {}, gpu);
  rig.run_for(4s);
  EXPECT_GE(rig.rate(job, 10s), 0.94 * 0.5 * alone);
  const auto shares = rig.measure(4s);
  for (const std::size_t other : {3U, 4U}) EXPECT_NEAR(shares[other], 0.5, 0.03);
}

// On one of its GPUs, each of which begins in whoever's turn it is, ends with its only kernel, and
// is followed by the next one.
struct Crowd {
  const char* description;
  Nanos work;        // of each
  std::size_t size;  // that are there at a time
  double least;      // of the GPU: in the millisecond between two nobody may be there
};
class ComeAndGo : public ::testing::TestWithParam<Crowd> {
 protected:
  void come(Nanos work) {
    sim::Program& program = rig_.add("brief", {}, 0);
    const uint64_t kernel = program.kernel(work);
    rig_.machine.then[kernel] = [this, work, client = program.client](const sim::Completion&) {
      sim::Model& model = rig_.machine.model;
      model.close_client(client);
      model.call_at(model.now() + 1ms, [this, work] { come(work); });
    };
  }
  double used_s(const char* tenant) {
    return std::chrono::duration<double>(Nanos(rig_.tenant(tenant).gpu[0].gpu_time_ns)).count();
  }

  GangRig rig_{2};
};

TEST_P(ComeAndGo, LeavesAJobItsShareAndHasItsOwn) {
  rig_.start();
  const sim::DataParallel& job = rig_.add_job("job", {}, {0, 1});
  for (std::size_t i = 0; i < GetParam().size; ++i) come(GetParam().work);
  rig_.run_for(4s);
  const double before = used_s("brief");
  EXPECT_GE(rig_.rate(job, 8s), 0.9 * 0.5);
  EXPECT_GE((used_s("brief") - before) / 8, GetParam().least);
  // What they did before may be told in these 8 s.
  EXPECT_LE((used_s("brief") - before) / 8, 0.52);
}

// Killed after 30 ms, whatever they have done.
TEST(UnrulyRanks, ProgramsThatAreKilledSoonLeaveAJobItsShare) {
  GangRig rig(2);
  rig.start();
  const sim::DataParallel& job = rig.add_job("job", {}, {0, 1});
  const auto rate = [&](int programs) {
    const uint64_t before = job.steps();
    for (int i = 0; i < programs; ++i) {
      const sim::Program& program = rig.add_busy("brief", {}, 0);
      rig.run_for(30ms);
      rig.machine.model.close_client(program.client);
    }
    return GangRig::rate_since(job, before, programs * 30ms);
  };
  rate(100);
  EXPECT_GE(rate(250), 0.9 * 0.5);
}

INSTANTIATE_TEST_SUITE_P(All, ComeAndGo,
                         ::testing::Values(Crowd{"one_of_5_ms", 5ms, 1, 0.40},
                                           Crowd{"one_of_30_ms", 30ms, 1, 0.46},
                                           Crowd{"one_of_150_ms", 150ms, 1, 0.47},
                                           Crowd{"one_of_700_ms", 700ms, 1, 0.47},
                                           Crowd{"three_of_10_ms", 10ms, 3, 0.46},
                                           Crowd{"eight_of_40_ms", 40ms, 8, 0.44}),
                         [](const auto& row) { return row.param.description; });

}  // namespace
}  // namespace gpushare
