// SPDX-License-Identifier: Apache-2.0
// One tenant, one step of its load, one rule: how many rounds until its share is right and stays
// so, and what happened on the way.
#pragma once

#include <functional>

#include "sched/slo/sizer.h"
#include "tests/sched/support/slo_world.h"

namespace gpushare {

struct LoadStep {
  std::string name;
  LatencyShape shape;
  double arrivals_before, arrivals_after;  // < 0: closed loop
  double work_before, work_after;          // multiples of full_speed
  double burst;
  double slo_factor;  // SLO as a multiple of full_speed * work_before
};

struct StepResult {
  int rounds = -1;        // until right for good; -1: never
  double most_above = 0;  // groups more than needed, after the first decision
  int missed_rounds = 0;  // rounds above the SLO (by more than 5 %) after it was first met again
  double needed = 0;      // groups
  double ended = 0;       // groups

  bool operator==(const StepResult&) const = default;
};

inline constexpr int kRounds = 40;

// `decide` gives the next share of the tenant after a round.
inline StepResult run_step(
    const LoadStep& step,
    const std::function<double(const WorldTenant&, const WorldRound&)>& decide) {
  WorldTenant tenant{.shape = step.shape};
  const double base = tenant.full_speed;
  tenant.full_speed = base * step.work_before;
  tenant.arrivals = step.arrivals_before;
  tenant.burst = step.burst;
  tenant.slo = tenant.full_speed * step.slo_factor;
  tenant.groups = fewest_groups(tenant);
  for (int round = 0; round < 5; ++round) tenant.groups = decide(tenant, run_round(tenant));

  tenant.full_speed = base * step.work_after;
  tenant.arrivals = step.arrivals_after;
  StepResult result;
  result.needed = fewest_groups(tenant);
  bool was_met = false;
  int right_since = -1;
  for (int round = 1; round <= kRounds; ++round) {
    tenant.groups = decide(tenant, run_round(tenant));
    const double response = steady_response(tenant, tenant.groups);
    const bool is_met = response <= tenant.slo * 1.05 || tenant.groups >= LatencyShape::kGroups;
    const bool is_right = is_met && tenant.groups <= result.needed + 1;
    if (was_met && !is_met) ++result.missed_rounds;
    was_met = was_met || is_met;
    result.most_above = std::max(result.most_above, tenant.groups - result.needed);
    if (!is_right) {
      right_since = -1;
    } else if (right_since < 0) {
      right_since = round;
    }
  }
  result.rounds = right_since <= kRounds - 10 ? right_since : -1;
  result.ended = tenant.groups;
  return result;
}

inline StepResult run_published(const LoadStep& step, bool divides) {
  const PublishedRule rule{divides};
  return run_step(step, [&](const WorldTenant& tenant, const WorldRound& round) {
    return rule.next(tenant, round);
  });
}

inline StepResult run_ours(const LoadStep& step) {
  SloSizer policy(static_cast<uint32_t>(LatencyShape::kGroups));
  return run_step(step, [&](const WorldTenant& tenant, const WorldRound& round) {
    SloTenant view;
    view.slo = Nanos(static_cast<int64_t>(tenant.slo * 1e9));
    view.groups = static_cast<uint32_t>(tenant.groups);
    view.iterations = static_cast<uint32_t>(round.throughput);
    view.latency = round.latency;
    view.service = round.service;
    view.throughput = round.throughput;
    view.arrivals = tenant.arrivals;
    return static_cast<double>(policy.decide(std::span(&view, 1)).front().groups);
  });
}

// Curves by steps: the work doubles and halves again (closed loop), the rate triples and falls back
// (arrivals at random, and in bursts that make the queue twice as long).
inline std::vector<LoadStep> load_steps() {
  using Shape = LatencyShape::Kind;
  std::vector<LoadStep> steps;
  const struct {
    const char* name;
    LatencyShape shape;
    double slo;
  } curves[] = {
      {"linear", {Shape::kLinear, 0}, 5.2},
      {"Amdahl, 10 % serial", {Shape::kAmdahl, 0.1}, 4.2},
      {"Amdahl, 30 % serial", {Shape::kAmdahl, 0.3}, 4.2},
      {"plateau from 9 groups", {Shape::kPlateau, 9}, 2.6},
      {"plateau from 4 groups", {Shape::kPlateau, 4}, 2.6},
      {"waves of 30 blocks", {Shape::kWaves, 30}, 4.2},
      {"waves of 128 blocks", {Shape::kWaves, 128}, 4.2},
  };
  for (const auto& [curve, shape, slo] : curves) {
    const std::string prefix = std::string(curve) + ": ";
    steps.push_back({prefix + "work x 2", shape, -1, -1, 1, 2, 1, slo});
    steps.push_back({prefix + "work / 2", shape, -1, -1, 2, 1, 1, slo});
    steps.push_back({prefix + "rate x 3", shape, 15, 45, 1, 1, 1, slo});
    steps.push_back({prefix + "rate / 3", shape, 45, 15, 1, 1, 1, slo});
    steps.push_back({prefix + "rate x 3, bursts", shape, 15, 45, 1, 1, 2, slo});
    steps.push_back({prefix + "rate / 3, bursts", shape, 45, 15, 1, 1, 2, slo});
  }
  return steps;
}

}  // namespace gpushare
