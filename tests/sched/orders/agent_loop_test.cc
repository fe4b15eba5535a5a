// SPDX-License-Identifier: Apache-2.0
// The whole agent less its event loop against the replay: the same jobs, on a simulated GPU in
// virtual time, end when the replay says that they end.
#include <gtest/gtest.h>

#include "bench/sched/replay/generator.h"
#include "bench/sched/replay/report.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare::replay {
namespace {

// It divides none of the lengths below: a job of exactly four turns would need a fifth one for what
// its hand-overs have cost it, one round later, and the replay reckons no such cost within a turn.
constexpr int64_t kTurnMs = 90;
// The programs have no shim: each hand-over is a freeze and a thaw in mid-kernel.
constexpr Nanos kHandOver = 760us;

// The jobs of 1, 5 and 10 minutes that order-replay makes, 40 of them, at 1/50. Each iteration is
// short, because a freeze waits for none. Shorter ones would show what the replay does not reckon
// with: a program that comes is beside whoever has the turn until it is seen that it works.
Jobs some_jobs() {
  Jobs jobs = generate({.n = 40, .long_jobs = 8, .mid_jobs = 3, .span_min = 20});
  const Nanos first = jobs.front().submit;
  for (Job& job : jobs) {
    job.submit = (job.submit - first) / 50;
    job.length /= 50;
    job.iterations = static_cast<uint64_t>(job.length / 1ms);
  }
  return jobs;
}

Nanos mean_in_the_agent(const Jobs& jobs, const std::string& policy) {
  test::SchedulerRig rig;
  rig.start(true, "[gpu.0]\npolicy = '" + policy + "'\nturn_ms = " + std::to_string(kTurnMs));
  rig.run_for(10ms);
  sim::Model& model = rig.machine.model;
  const Time begin = model.now();
  Nanos sum{};
  std::vector<uint32_t> clients, done;
  size_t ended = 0;
  while (ended < jobs.size() && model.now() < begin + 10min) {
    while (clients.size() < jobs.size() && begin + jobs[clients.size()].submit <= model.now()) {
      const Job& job = jobs[clients.size()];
      sim::Program& program =
          rig.add(job.name, {{"length_us", std::to_string(job.length / Micros(1))}});
      clients.push_back(program.client);
      const Time submitted = begin + job.submit;
      rig.machine.then[program.kernel(job.length)] =
          [&, submitted, client = program.client](const sim::Completion&) {
            sum += model.now() - submitted;
            done.push_back(client);
          };
    }
    rig.run_for(1ms);
    if (rig.scheduler->look_at_turns()) rig.step();  // as the agent does between two steps
    for (const uint32_t client : std::exchange(done, {})) {
      model.close_client(client);
      ++ended;
    }
  }
  EXPECT_EQ(ended, jobs.size());
  return sum / static_cast<int64_t>(jobs.size());
}

class AgentLoop : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, AgentLoop, testing::Values("fifo", "srtf", "turns"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(AgentLoop, EndsItsJobsWithinOnePercentOfTheReplay) {
  const Jobs jobs = some_jobs();
  const Replay replay = gpushare::replay::replay(
      jobs,
      {.policy = *policy_named(GetParam(), {{"turn_ms", kTurnMs}}), .costs = {.gap = kHandOver}});
  const Nanos expected = figures_of("", jobs, replay, 1).mean;
  const Nanos mean = mean_in_the_agent(jobs, GetParam());
  const double ratio = std::chrono::duration<double>(mean) / expected;
  RecordProperty("mean_ms", std::to_string(mean / 1ms));
  RecordProperty("replay_ms", std::to_string(expected / 1ms));
  EXPECT_NEAR(ratio, 1, 0.01) << "the mean job takes " << mean / 1ms << " ms, by the replay "
                              << expected / 1ms << " ms";
}

}  // namespace
}  // namespace gpushare::replay
