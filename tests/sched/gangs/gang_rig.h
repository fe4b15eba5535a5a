// SPDX-License-Identifier: Apache-2.0
// Data-parallel jobs and their neighbours under a whole agent on simulated GPUs, in virtual time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare::test {

using namespace std::chrono_literals;

inline constexpr Nanos kGivenUp = 5s;  // until the turns of one that slackens are another's
inline constexpr Nanos kBack = 3s;     // until one that works again has its turns

class GangRig : public SchedulerRig {
 public:
  using SchedulerRig::SchedulerRig;

  // Whoever was there before has been looked for when it returns.
  void start(std::string_view config = "") {
    SchedulerRig::start(true, config);
    run_for(3ms);
  }
  // A job of one run with a rank on each of these GPUs.
  sim::DataParallel& add_job(const std::string& tenant, const std::vector<Setting>& settings,
                             const std::vector<uint32_t>& on, sim::DataParallel::Step step = {}) {
    std::vector<sim::Program*> ranks;
    for (const uint32_t gpu : on) {
      sim::Program& rank = add(tenant, settings, gpu);
      ProcessDetails& details = processes.add(rank.process, "rank");
      if (!ranks.empty()) details.parent = ranks.front()->process.pid;
      if (ranks.empty()) (void)tenants.begin_run(rank.process, Time{1s}).value();
      ranks.push_back(&rank);
    }
    jobs.push_back(std::make_unique<sim::DataParallel>(ranks, 1 + jobs.size(), step));
    return *jobs.back();
  }
  // Steps of a job since it had made `before`, `time` ago, as a part of what it makes alone.
  static double rate_since(const sim::DataParallel& job, uint64_t before, Nanos time) {
    return static_cast<double>(job.steps() - before) * std::chrono::duration<double>(job.alone()) /
           time;
  }
  // In the next `time`.
  double rate(const sim::DataParallel& job, Nanos time) {
    const uint64_t before = job.steps();
    run_for(time);
    return rate_since(job, before, time);
  }

  std::vector<std::unique_ptr<sim::DataParallel>> jobs;
};

// A job on both of two GPUs.
struct JobOnTwoGpus : GangRig {
  explicit JobOnTwoGpus(const std::vector<Setting>& settings = {})
      : GangRig(2), job((start(), add_job("job", settings, {0, 1}))) {}

  sim::DataParallel& job;
};

}  // namespace gpushare::test
