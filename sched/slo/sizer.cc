// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/sizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

namespace gpushare {
namespace {

constexpr double kQueue = 1.1;  // ratio of latency to service time from which on there is a queue
constexpr double kSomeLoad =
    0.1;  // from this load to kFullLoad, waiting says how bursty arrivals are
constexpr double kMostBursts = 4;
constexpr double kLoop = 0.7;
constexpr uint32_t kFewestIterations = 4;  // from so many on a mean counts

double service_of(const SloTenant& tenant) {
  return tenant.service > 0 ? tenant.service : tenant.latency;
}

bool is_measured(const SloTenant& tenant) {
  return tenant.groups > 0 && tenant.iterations >= kFewestIterations && tenant.latency > 0;
}

}  // namespace

std::vector<SloShare> SloSizer::decide(std::span<const SloTenant> tenants) {
  ++call_;
  std::vector<Served> all_served;  // tenants with a target
  std::vector<uint32_t> weights;   // of the tenants without a target
  for (const SloTenant& tenant : tenants) {
    Memory& memory = memories_[tenant.id];
    memory.last_call = call_;
    memory.is_fresh = tenant.slo.count() > 0 && is_measured(tenant);
    if (memory.is_fresh) {
      note(tenant, memory);
    } else if (tenant.arrivals >= 0 && memory.rate >= 0) {
      follow_rate(tenant, memory);
    }
  }
  std::erase_if(memories_, [&](const auto& entry) { return entry.second.last_call != call_; });
  note_others();
  sharers_.clear();
  for (const auto& [id, memory] : memories_) ++sharers_[memory.set];
  for (const SloTenant& tenant : tenants) {
    Memory& memory = memories_.at(tenant.id);
    if (tenant.slo.count() > 0) {
      // A tenant that works nearly all the time is a loop: it would do more if it could.
      if (memory.is_fresh)
        memory.completions = memory.busy * (1 - memory.others) > kLoop ? -1 : tenant.throughput;
      memory.demand = demand_of(tenant, memory);
      all_served.push_back(serve(tenant, memory));
    } else {
      weights.push_back(std::max(tenant.weight, 1U));
    }
  }

  std::vector<Served*> served;
  served.reserve(all_served.size());
  for (Served& one : all_served) served.push_back(&one);
  const Division division = divide(served, std::move(weights));
  std::vector<SloShare> served_shares(served.size());
  for (uint32_t set = 0; set < division.packs.size(); ++set) {
    const Pack& pack = division.packs[set];
    for (const uint32_t place : pack.members)
      served_shares[place] = {.groups = division.given[set], .demand = pack.demand, .set = set};
  }
  std::vector<SloShare> shares;
  auto next_served = served_shares.begin();
  uint32_t next_rest = 0;
  for (const SloTenant& tenant : tenants) {
    if (tenant.slo.count() > 0) {
      shares.push_back(*next_served++);
    } else {
      const uint32_t set = rest_shares_ ? 0 : next_rest++;
      const uint32_t groups = division.rest[set];
      const auto behind = static_cast<uint32_t>(division.packs.size());
      shares.push_back({.groups = groups, .demand = groups, .set = behind + set});
    }
    SloShare& share = shares.back();
    share.id = tenant.id;
    memories_.at(tenant.id).set = share.set;
    if (share.groups < share.demand) {
      share.move = SloMove::kStarved;
    } else if (tenant.groups > 0 && share.groups != tenant.groups) {
      share.move = share.groups > tenant.groups ? SloMove::kGrow : SloMove::kShrink;
    }
  }
  return shares;
}

double SloSizer::slo_seconds(const SloTenant& tenant) {
  return static_cast<double>(tenant.slo.count()) * 1e-9;
}

// Returns the groups that are needed if the response is above the target or well below it, and
// otherwise those that the tenant has: the dead band.
uint32_t SloSizer::beside_band(double response, double target, double band, uint32_t needed,
                               uint32_t present) {
  if (response > target) return std::max(needed, present);
  if (response < target * (1 - 2 * band)) return std::min(needed, present);
  return present;
}

SloSizer::Served SloSizer::serve(const SloTenant& tenant, Memory& memory) const {
  Served served{.tenant = &tenant, .memory = &memory, .target = slo_seconds(tenant), .seconds = {}};
  for (uint32_t groups = 1; memory.curve.is_known() && groups <= groups_; ++groups)
    served.seconds.push_back(memory.curve.likely_seconds(groups));
  return served;
}

void SloSizer::note(const SloTenant& tenant, Memory& memory) {
  const double service = service_of(tenant);
  memory.rate = rate_of(tenant, service);
  memory.service = service;
  memory.launches = std::max(tenant.launches, 1.0);
  const double busy = tenant.throughput * service;
  memory.busy = std::clamp(busy, 0.0, kFullLoad);
  if (const double load = memory.rate * service; load > kSomeLoad && load < kFullLoad) {
    // It follows slowly, because a queue of the past passes.
    const double random = response_seconds(service, memory.rate) - service;
    const double ratio = std::max(tenant.latency - service, 0.0) / random;
    memory.burstiness += (std::clamp(ratio, 0.5, kMostBursts) - memory.burstiness) * 0.25;
  }
}

// For a tenant that was not measured on the groups that it has now, but whose requests were
// counted.
void SloSizer::follow_rate(const SloTenant& tenant, Memory& memory) {
  memory.rate = tenant.arrivals;
  if (memory.curve.is_known() && tenant.groups > 0)
    memory.load = std::min(memory.rate * memory.curve.seconds(tenant.groups), kFullLoad);
}

// When loads r[i] with the sum r share processors, load i is busy for the part
// b[i] = r[i] / (1 - r + r[i]) of the time. So the odds that it is busy are r[i] / (1 - r).
double SloSizer::odds(const Memory& memory) { return memory.busy / (1 - memory.busy); }

// Finds for each tenant the part of the time in which others of its set work, from how busy each
// was. A tenant that was not measured in this round may have had others beside it when it was: of
// it counts the load that was found then.
void SloSizer::note_others() {
  struct Sum {
    double odds = 0, known = 0;  // odds of those that are fresh; loads of the others
    double rest = 0;             // mean seconds of the kernel at work
    double all() const { return std::min((known + odds) / (1 + odds), kFullLoad); }
  };
  std::map<uint32_t, Sum> sums;
  for (const auto& [id, memory] : memories_) {
    Sum& sum = sums[memory.set];
    (memory.is_fresh ? sum.odds : sum.known) += memory.is_fresh ? odds(memory) : memory.load;
  }
  const auto rest_of = [](const Memory& memory) {
    return memory.load * memory.service * (1 - memory.others) / memory.launches;
  };
  for (auto& [id, memory] : memories_) {
    memory.others = memory.blocked = 0;
    if (memory.set == kNoSet) {
      memory.load = memory.busy;
      continue;
    }
    Sum& sum = sums.at(memory.set);
    if (memory.is_fresh) memory.load = odds(memory) * (1 - sum.all());
    memory.others = std::max(sum.all() - memory.load, 0.0);
    sum.rest += rest_of(memory);
  }
  for (auto& [id, memory] : memories_) {
    if (memory.set == kNoSet) continue;
    const double rest = std::max(sums.at(memory.set).rest - rest_of(memory), 0.0);
    memory.blocked = waits(memory) * rest / (1 - memory.others);
  }
}

// Estimates the service time that would have been measured alone. It lies between the measured one
// less all waiting that the others' kernels may explain, and what processor sharing says (about the
// inverse of see_each()). What was known before is believed as far as these bounds allow. What
// others did to few requests is chance, and moves a curve that is known there only a little.
void SloSizer::observe(const SloTenant& tenant, Memory& memory) {
  constexpr double kLeast = 0.5, kMany = 64;
  const double service = service_of(tenant), shared = service * (1 - memory.others);
  double seconds = shared;
  if (memory.others > 0 && memory.curve.is_known()) {
    const double known = memory.curve.seconds(tenant.groups);
    const double least = std::clamp(service - memory.blocked, shared * kLeast, shared);
    seconds = std::clamp(known, least, shared);
    if (memory.curve.is_between(tenant.groups))
      seconds = known * std::pow(seconds / known, tenant.iterations / (tenant.iterations + kMany));
  }
  memory.curve.observe(tenant.groups, seconds);
}

uint32_t SloSizer::demand_of(const SloTenant& tenant, Memory& memory) const {
  const uint32_t most = most_of(tenant);
  if (!memory.curve.is_known() && !memory.is_fresh)
    return std::clamp(tenant.knee.value_or(tenant.first), 1U, most);
  if (!memory.is_fresh && (tenant.arrivals < 0 || memory.rate < 0 || tenant.groups == 0))
    return std::clamp(memory.demand, 1U, most);
  if (memory.is_fresh) observe(tenant, memory);
  const double slo = slo_seconds(tenant);
  const double now = expected(memory, tenant.groups);
  const uint32_t needed = std::min(fewest_that_meet(memory, slo * (1 - kBand)), most);
  return beside_band(now, slo, kBand, needed, std::min(tenant.groups, most));
}

uint32_t SloSizer::most_of(const SloTenant& tenant) const {
  const uint32_t allowed = tenant.most == 0 ? groups_ : std::min(tenant.most, groups_);
  return std::max(std::min(allowed, tenant.knee.value_or(groups_)), 1U);
}

double SloSizer::longest_service(uint32_t id, double slo) const {
  const auto found = memories_.find(id);
  if (found == memories_.end() || found->second.rate < 0) return slo;
  double meets = 0, misses = slo;  // halving: the response only rises with the service time
  for (int i = 0; i < 40; ++i) {
    const double middle = (meets + misses) / 2;
    (response(found->second, middle) <= slo ? meets : misses) = middle;
  }
  return meets;
}

uint32_t SloSizer::fewest_that_meet(const Memory& memory, double target) const {
  for (uint32_t groups = 1; groups < groups_; ++groups)
    if (expected(memory, groups) <= target) return groups;
  return groups_;
}

double SloSizer::rate_of(const SloTenant& tenant, double service) {
  if (tenant.arrivals >= 0) return tenant.arrivals;
  return tenant.latency > kQueue * service ? tenant.throughput : -1;
}

double SloSizer::response(const Memory& memory, double service) {
  if (memory.rate < 0) return service;
  return service + (response_seconds(service, memory.rate) - service) * memory.burstiness;
}

double SloSizer::expected(const Memory& memory, uint32_t groups) {
  return response(memory, memory.curve.seconds(groups));
}

}  // namespace gpushare
