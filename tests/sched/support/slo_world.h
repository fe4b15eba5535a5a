// SPDX-License-Identifier: Apache-2.0
// A simulated GPU for rules that hand out SMs: tenants with a latency curve, an SLO and requests,
// in rounds of a second. Deterministic, no time passes. Shares are real numbers of groups, so that
// rules in percent run in it too.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/slo/service_curve.h"

namespace gpushare {

inline GpuInfo gpu_of(uint32_t sms) {
  return {.index = 0,
          .instance = 0,
          .uuid = {},
          .name = "NVIDIA H200",
          .pci = "0000:1b:00.0",
          .sm_count = sms,
          .memory_bytes = 0};
}
// Of 15 groups.
inline const GpuInfo kWorldGpu = gpu_of(120);

// Service time as a multiple of that on all groups, of which there are 15.
struct LatencyShape {
  enum class Kind { kLinear, kAmdahl, kPlateau, kWaves };
  Kind kind = Kind::kLinear;
  // kAmdahl: part of the work on all groups that SMs do not speed up. kPlateau: groups beyond which
  // nothing is gained, inversely proportional below. kWaves: blocks, of which a group takes one at
  // a time.
  double parameter = 0;

  static constexpr double kGroups = 15;

  double at(double groups) const {
    switch (kind) {
      case Kind::kLinear:
        return kGroups / groups;
      case Kind::kAmdahl:
        return parameter + (1 - parameter) * kGroups / groups;
      case Kind::kPlateau:
        return std::max(1.0, parameter / groups);
      case Kind::kWaves:
        return std::ceil(parameter / groups - 1e-9) / std::ceil(parameter / kGroups - 1e-9);
    }
    return 1;
  }
};

struct WorldTenant {
  LatencyShape shape;
  double full_speed = 0.010;  // seconds of one iteration on all groups
  double slo = 0;             // seconds
  double arrivals = -1;       // a second; < 0: each follows the one before
  double burst = 1;           // how much longer requests wait than if they arrived at random
  double groups = 1;
  double backlog = 0;

  double service() const { return full_speed * shape.at(groups); }
};

// One round of one tenant.
struct WorldRound {
  double latency = 0, service = 0, throughput = 0;
};

inline double steady_response(const WorldTenant& tenant, double groups) {
  const double service = tenant.full_speed * tenant.shape.at(groups);
  if (tenant.arrivals < 0) return service;
  return service + (response_seconds(service, tenant.arrivals) - service) * tenant.burst;
}

inline WorldRound run_round(WorldTenant& tenant) {
  WorldRound round;
  round.service = tenant.service();
  const double capacity = 1 / round.service;
  if (tenant.arrivals < 0) {
    round.latency = round.service;
    round.throughput = capacity;
    return round;
  }
  const double before = tenant.backlog;
  const double work = before + tenant.arrivals;
  round.throughput = std::min(work, capacity);
  tenant.backlog = work - round.throughput;
  // Random arrivals, but no more waiting than a round of them; and behind what was there before.
  round.latency = std::min(steady_response(tenant, tenant.groups), round.service + 0.5) +
                  (before + tenant.backlog) / 2 * round.service;
  return round;
}

// The fewest whole groups on which it meets its SLO in the long run, at most all.
inline uint32_t fewest_groups(const WorldTenant& tenant) {
  for (uint32_t groups = 1; groups < LatencyShape::kGroups; ++groups)
    if (steady_response(tenant, groups) <= tenant.slo) return groups;
  return static_cast<uint32_t>(LatencyShape::kGroups);
}

// --- rules
// ----------------------------------------------------------------------------------------

// GSLICE's, in the two readings that others published of it (R1, R2): both grow by the larger
// relative residual; R1 shrinks by subtracting it, R2 by dividing.
struct PublishedRule {
  bool divides = true;

  double next(const WorldTenant& tenant, const WorldRound& round) const {
    constexpr double kBand = 0.05, kMost = LatencyShape::kGroups, kLeast = kMost / 100;
    const double latency_off = (tenant.slo - round.latency) / round.latency;
    const double throughput_off =
        tenant.arrivals < 0 ? 0 : (round.throughput - tenant.arrivals) / tenant.arrivals;
    double share = tenant.groups;
    if (std::min(latency_off, throughput_off) < -kBand) {
      const double lack =
          tenant.arrivals < 0
              ? 0
              : std::max(0.0, (tenant.arrivals - round.throughput) / round.throughput);
      share *= 1 + std::max(std::max(0.0, -latency_off), lack);
    } else if (latency_off > kBand) {
      share = divides ? share / (1 + latency_off) : share * (1 - latency_off);
    }
    return std::clamp(share, kLeast, kMost);
  }
};

}  // namespace gpushare
