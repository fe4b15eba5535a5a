// SPDX-License-Identifier: Apache-2.0
// Services with targets that share the SMs of one simulated GPU, in rounds of a second, under any
// rule that says who has which set and how large. Deterministic, no time passes.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "sched/slo/sizer.h"
#include "tests/sched/support/slo_world.h"

namespace gpushare {

// As inference services are: quick when wide, mostly idle, targets of three to five times what they
// take on all SMs. Of fourteen the GPU would work half of the time.
inline std::vector<WorldTenant> functions(int count) {
  std::vector<WorldTenant> all;
  for (int i = 0; i < count; ++i) {
    const double full_speed = 0.003 + 0.001 * (i % 5);
    all.push_back({.shape = {LatencyShape::Kind::kAmdahl, 0.15},
                   .full_speed = full_speed,
                   .slo = full_speed * (3 + i % 3),
                   .arrivals = 0.05 / full_speed / (1 + i % 2)});
  }
  return all;
}

// Those of a set share its SMs as processors are shared, so that each is slowed by the part of the
// time in which others of its set work; but each at least waits for what they are at when it comes.
class Services {
 public:
  // A set of its own for each, of `groups`.
  explicit Services(std::vector<WorldTenant> tenants, double groups = 1)
      : tenants_(std::move(tenants)) {
    for (WorldTenant& tenant : tenants_) {
      tenant.groups = groups;
      sets_.push_back(static_cast<uint32_t>(sets_.size()));
    }
  }

  // A round, and what `policy` makes of it.
  void round(SloSizer& policy) {
    const std::vector<uint32_t> before = sets_;
    std::vector<SloTenant> views;
    for (uint32_t i = 0; i < tenants_.size(); ++i) {
      const WorldRound seen = measure(i);
      SloTenant& view = views.emplace_back();
      view.id = i;
      view.slo = Nanos(static_cast<int64_t>(tenants_[i].slo * 1e9));
      view.groups = static_cast<uint32_t>(tenants_[i].groups);
      view.service = seen.service;
      view.arrivals = tenants_[i].arrivals;
      view.throughput = seen.throughput;
      view.latency = seen.latency;
      view.iterations = 8;  // what is rare is waited for
      view.can_share = i != may_not_share_;
      if (i == most_of_) view.most = most_;
      if (i == unmeasured_) view.iterations = 0, view.first = first_;
    }
    const auto shares = policy.decide(views);
    for (uint32_t i = 0; i < tenants_.size(); ++i) {
      // Sets are numbered anew each time: one that begins with the same tenant is the same.
      const auto first_of = [&](const auto& set) {
        uint32_t first = 0;
        while (set(first) != set(i)) ++first;
        return first;
      };
      moves_ += first_of([&](uint32_t j) { return shares[j].set; }) !=
                first_of([&](uint32_t j) { return before[j]; });
      sets_[i] = shares[i].set;
      give(i, shares[i].groups);
    }
  }

  WorldRound measure(uint32_t i) {
    WorldRound round;
    round.service = service(i) * (1 + noise_ * off_(random_));
    round.throughput = std::min(tenants_[i].arrivals, 0.95 / round.service);
    round.latency = std::min(response_seconds(round.service, tenants_[i].arrivals), 1.0);
    return round;
  }
  double response(uint32_t i) const { return response_seconds(service(i), tenants_[i].arrivals); }
  bool is_met(uint32_t i) const { return response(i) <= tenants_[i].slo; }
  uint32_t set(uint32_t i) const { return sets_[i]; }
  void give(uint32_t i, double groups) {
    changes_ += groups != tenants_[i].groups;
    tenants_[i].groups = groups;
  }
  std::vector<WorldTenant>& tenants() { return tenants_; }
  void forbid_sharing(uint32_t tenant) { may_not_share_ = tenant; }
  void set_most(uint32_t tenant, uint32_t groups) { most_of_ = tenant, most_ = groups; }
  void leave_unmeasured(uint32_t tenant, uint32_t first) { unmeasured_ = tenant, first_ = first; }
  void set_noise(double part) { noise_ = part; }  // of what is measured
  // Tenants that changed sets.
  int take_moves() { return std::exchange(moves_, 0); }
  // Tenants whose groups changed.
  int take_changes() { return std::exchange(changes_, 0); }

 private:
  double service(uint32_t i) const {
    double others = 0, rest = 0;
    for (uint32_t j = 0; j < tenants_.size(); ++j) {
      if (j == i || sets_[j] != sets_[i]) continue;
      const double load = tenants_[j].arrivals * alone(j);
      others += load;
      rest += load * alone(j) / 2;
    }
    const double idle = 1 - std::min(others, 0.95);
    return std::max(alone(i) / idle, alone(i) + rest / idle);
  }
  double alone(uint32_t i) const {
    WorldTenant tenant = tenants_[i];
    tenant.groups = std::max(tenant.groups, 0.01);
    return tenant.service();
  }

  std::vector<WorldTenant> tenants_;
  std::vector<uint32_t> sets_;
  uint32_t may_not_share_ = UINT32_MAX, most_of_ = UINT32_MAX, unmeasured_ = UINT32_MAX;
  uint32_t most_ = 0, first_ = 1;
  double noise_ = 0;
  std::mt19937_64 random_{1};
  std::uniform_real_distribution<double> off_{-1, 1};
  int changes_ = 0, moves_ = 0;
};

}  // namespace gpushare
