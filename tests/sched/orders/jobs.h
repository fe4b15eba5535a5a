// SPDX-License-Identifier: Apache-2.0
// Jobs for tests, of the policies that order them and of what carries a plan of jobs out: views by
// hand, and a policy that says what the test wants.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sched/policy/entry.h"

namespace gpushare::test {

// A job that wants the GPU and has waited since it came.
inline JobView waiting_job(uint64_t id, Time arrived, std::optional<Nanos> left = {}) {
  return {.id = id,
          .name = "job",
          .arrived = arrived,
          .left = left,
          .left_source = left ? LeftSource::kSaid : LeftSource::kUnknown,
          .wants_gpu = true,
          .since = arrived};
}

// The job with the turn by the plan; 0: none has it.
inline uint64_t job_with_turn(const Plan& plan) {
  for (const JobDecision& decision : plan.jobs)
    if (decision.runs) return decision.job;
  return 0;
}

// The jobs of a plan in its order.
inline std::vector<uint64_t> order_of(const Plan& plan) {
  std::vector<uint64_t> order;
  for (const JobDecision& decision : plan.jobs) order.push_back(decision.job);
  return order;
}

// A policy whose plans the test makes. An entry of it can be given to parse_config() beside the
// real ones, so that a whole agent can run it.
class ScriptedPolicy final : public Policy {
 public:
  using Script = std::function<Plan(const Snapshot&)>;

  explicit ScriptedPolicy(Script script) : script_(std::move(script)) {}
  Plan plan(const Snapshot& snapshot) override { return script_(snapshot); }

  static PolicyEntry entry(std::string_view name, Script script) {
    return {name,
            "Does what a test says.",
            {.iterations = true, .turns = true},
            {},
            [script = std::move(script)](const GpuView&, const PolicyOptions&) {
              return std::make_unique<ScriptedPolicy>(script);
            }};
  }

 private:
  const Script script_;
};

// One turn at a time: the job `chosen` runs, all others wait.
inline Plan plan_turn_of(const Snapshot& snapshot, uint64_t chosen) {
  Plan plan;
  for (const bool runs : {true, false})
    for (const JobView& job : snapshot.jobs)
      if ((job.id == chosen) == runs)
        plan.jobs.push_back({.job = job.id,
                             .runs = runs,
                             .reason = runs ? "" : "turn of " + std::to_string(chosen)});
  return plan;
}

}  // namespace gpushare::test
