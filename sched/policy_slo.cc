// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_slo.h"

#include <algorithm>

#include "sched/policy_groups.h"

namespace gpushare {
namespace {

constexpr double kBand = 0.05;
constexpr double kQueue = 1.1;  // latency to service time from which on there is a queue
constexpr double kSomeLoad = 0.1, kFullLoad = 0.9;  // between, waiting says how bursty arrivals are
constexpr double kMostBursts = 4;
constexpr uint32_t kFewestIterations = 4;  // that make a mean

double slo_seconds(const SloTenant& tenant) {
  return static_cast<double>(tenant.slo.count()) * 1e-9;
}

bool is_measured(const SloTenant& tenant) {
  return tenant.groups > 0 && tenant.iterations >= kFewestIterations && tenant.latency > 0;
}

}  // namespace

std::vector<SloShare> SloPolicy::decide(std::span<const SloTenant> tenants) {
  ++call_;
  std::vector<uint32_t> demands, weights;
  for (const SloTenant& tenant : tenants) {
    Memory& memory = memories_[tenant.id];
    memory.last_call = call_;
    if (tenant.slo.count() > 0) {
      memory.demand = demand_of(tenant, memory);
      demands.push_back(memory.demand);
    } else {
      weights.push_back(std::max(tenant.weight, 1U));
    }
  }
  std::erase_if(memories_, [&](const auto& entry) { return entry.second.last_call != call_; });

  const auto others = static_cast<uint32_t>(weights.size());
  const uint32_t reserved = std::min(
      others, groups_ - std::min<uint32_t>(groups_, static_cast<uint32_t>(demands.size())));
  const std::vector<uint32_t> served = divide_max_min(groups_ - reserved, demands);
  uint32_t left = groups_;
  for (const uint32_t share : served) left -= share;
  const std::vector<uint32_t> rest = divide_in_proportion(left, weights, 1);

  std::vector<SloShare> shares;
  auto next_served = served.begin();
  auto next_rest = rest.begin();
  for (const SloTenant& tenant : tenants) {
    const bool has_slo = tenant.slo.count() > 0;
    SloShare& share = shares.emplace_back();
    share.id = tenant.id;
    share.groups = has_slo ? *next_served++ : *next_rest++;
    share.demand = has_slo ? memories_[tenant.id].demand : share.groups;
    if (share.groups < share.demand) {
      share.move = SloMove::kStarved;
    } else if (tenant.groups > 0 && share.groups != tenant.groups) {
      share.move = share.groups > tenant.groups ? SloMove::kGrow : SloMove::kShrink;
    }
  }
  return shares;
}

uint32_t SloPolicy::demand_of(const SloTenant& tenant, Memory& memory) const {
  const uint32_t most = most_of(tenant);
  if (!is_measured(tenant)) {
    const bool was_measured = memory.curve.is_known();
    return std::clamp(was_measured ? memory.demand : tenant.knee.value_or(tenant.first), 1U, most);
  }
  const double service = tenant.service > 0 ? tenant.service : tenant.latency;
  memory.curve.observe(tenant.groups, service);
  memory.rate = rate_of(tenant, service);
  if (const double load = memory.rate * service; load > kSomeLoad && load < kFullLoad) {
    // Slowly: a queue of the past passes.
    const double random = response_seconds(service, memory.rate) - service;
    const double ratio = std::max(tenant.latency - service, 0.0) / random;
    memory.burstiness += (std::clamp(ratio, 0.5, kMostBursts) - memory.burstiness) * 0.25;
  }
  const double slo = slo_seconds(tenant);
  const double now = expected(memory, tenant.groups);
  const uint32_t needed = std::min(fewest_that_meet(memory, slo * (1 - kBand)), most);
  if (now > slo) return std::max(needed, std::min(tenant.groups, most));
  if (now < slo * (1 - 2 * kBand)) return std::min(needed, tenant.groups);
  return std::min(tenant.groups, most);
}

uint32_t SloPolicy::most_of(const SloTenant& tenant) const {
  const uint32_t allowed = tenant.most == 0 ? groups_ : std::min(tenant.most, groups_);
  return std::max(std::min(allowed, tenant.knee.value_or(groups_)), 1U);
}

double SloPolicy::longest_service(uint32_t id, double slo) const {
  const auto found = memories_.find(id);
  if (found == memories_.end() || found->second.rate < 0) return slo;
  double meets = 0, misses = slo;  // halving: the response only rises with the service time
  for (int i = 0; i < 40; ++i) {
    const double middle = (meets + misses) / 2;
    (response(found->second, middle) <= slo ? meets : misses) = middle;
  }
  return meets;
}

uint32_t SloPolicy::fewest_that_meet(const Memory& memory, double target) const {
  for (uint32_t groups = 1; groups < groups_; ++groups)
    if (expected(memory, groups) <= target) return groups;
  return groups_;
}

double SloPolicy::rate_of(const SloTenant& tenant, double service) {
  if (tenant.arrivals >= 0) return tenant.arrivals;
  return tenant.latency > kQueue * service ? tenant.throughput : -1;
}

double SloPolicy::response(const Memory& memory, double service) {
  if (memory.rate < 0) return service;
  return service + (response_seconds(service, memory.rate) - service) * memory.burstiness;
}

double SloPolicy::expected(const Memory& memory, uint32_t groups) {
  return response(memory, memory.curve.seconds(groups));
}

}  // namespace gpushare
