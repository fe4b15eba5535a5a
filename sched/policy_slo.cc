// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_slo.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>

namespace gpushare {
namespace {

constexpr double kBand = 0.05;
constexpr double kQueue = 1.1;  // latency to service time from which on there is a queue
constexpr double kSomeLoad = 0.1, kFullLoad = 0.9;  // between, waiting says how bursty arrivals are
constexpr double kMostBursts = 4;
constexpr double kLoop = 0.7;
constexpr uint32_t kFewestIterations = 4;  // that make a mean

double slo_seconds(const SloTenant& tenant) {
  return static_cast<double>(tenant.slo.count()) * 1e-9;
}

double service_of(const SloTenant& tenant) {
  return tenant.service > 0 ? tenant.service : tenant.latency;
}

bool is_measured(const SloTenant& tenant) {
  return tenant.groups > 0 && tenant.iterations >= kFewestIterations && tenant.latency > 0;
}

// What is needed, where the response is above the target or well below it; what there is else.
uint32_t beside_band(double response, double target, uint32_t needed, uint32_t present) {
  if (response > target) return std::max(needed, present);
  if (response < target * (1 - 2 * kBand)) return std::min(needed, present);
  return present;
}

}  // namespace

std::vector<SloShare> SloPolicy::decide(std::span<const SloTenant> tenants) {
  ++call_;
  std::vector<const SloTenant*> served;  // for their targets
  std::vector<uint32_t> weights;         // of the rest
  for (const SloTenant& tenant : tenants) {
    Memory& memory = memories_[tenant.id];
    memory.last_call = call_;
    memory.is_fresh = tenant.slo.count() > 0 && is_measured(tenant);
    if (memory.is_fresh) note(tenant, memory);
  }
  std::erase_if(memories_, [&](const auto& entry) { return entry.second.last_call != call_; });
  note_others();
  for (const SloTenant& tenant : tenants) {
    Memory& memory = memories_.at(tenant.id);
    if (tenant.slo.count() > 0) {
      // Who works nearly all the time is a loop: it would do more if it could.
      if (memory.is_fresh)
        memory.completions = memory.busy * (1 - memory.others) > kLoop ? -1 : tenant.throughput;
      memory.demand = demand_of(tenant, memory);
      memory.seconds.clear();
      for (uint32_t groups = 1; memory.curve.is_known() && groups <= groups_; ++groups)
        memory.seconds.push_back(memory.curve.seconds(groups));
      served.push_back(&tenant);
    } else {
      weights.push_back(std::max(tenant.weight, 1U));
    }
  }

  const Division division = divide(served, std::move(weights));
  std::vector<SloShare> served_shares(served.size());
  for (uint32_t set = 0; set < division.packs.size(); ++set) {
    const SloPack& pack = division.packs[set];
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

void SloPolicy::note(const SloTenant& tenant, Memory& memory) {
  const double service = service_of(tenant);
  memory.rate = rate_of(tenant, service);
  memory.service = service;
  const double busy = tenant.throughput * service;
  memory.busy = std::clamp(busy, 0.0, kFullLoad);
  if (const double load = memory.rate * service; load > kSomeLoad && load < kFullLoad) {
    // Slowly: a queue of the past passes.
    const double random = response_seconds(service, memory.rate) - service;
    const double ratio = std::max(tenant.latency - service, 0.0) / random;
    memory.burstiness += (std::clamp(ratio, 0.5, kMostBursts) - memory.burstiness) * 0.25;
  }
}

// Of loads r[i] that share processors, i is busy for b[i] = r[i] / (1 - r + r[i]) of the time, r
// the sum of all: r[i] / (1 - r), the odds that it is.
double SloPolicy::odds(const Memory& memory) { return memory.busy / (1 - memory.busy); }

// How much of the time each finds another one of its set at work, from how busy each was. Who was
// not measured now was so with others perhaps: of it counts the load that was found then.
void SloPolicy::note_others() {
  struct Sum {
    double odds = 0, known = 0;  // of those that are fresh; loads of the rest
    double rest = 0;             // seconds of what is being worked on
    double all() const { return std::min((known + odds) / (1 + odds), kFullLoad); }
  };
  std::map<uint32_t, Sum> sums;
  for (const auto& [id, memory] : memories_) {
    Sum& sum = sums[memory.set];
    (memory.is_fresh ? sum.odds : sum.known) += memory.is_fresh ? odds(memory) : memory.load;
  }
  const auto rest_of = [](const Memory& memory) {
    return memory.load * memory.service * (1 - memory.others);
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
    memory.blocked = rest / (1 - memory.others);
  }
}

// What it would take if no other worked on its set: about the inverse of worst_of(). Not much less
// than processor sharing says: waiting that did not happen explains everything.
double SloPolicy::alone(const Memory& memory, double service) {
  constexpr double kLeast = 0.5;
  const double shared = service * (1 - memory.others);
  return std::clamp(service - memory.blocked, shared * kLeast, shared);
}

uint32_t SloPolicy::demand_of(const SloTenant& tenant, Memory& memory) const {
  const uint32_t most = most_of(tenant);
  if (!memory.is_fresh) {
    const bool was_measured = memory.curve.is_known();
    return std::clamp(was_measured ? memory.demand : tenant.knee.value_or(tenant.first), 1U, most);
  }
  memory.curve.observe(tenant.groups, alone(memory, service_of(tenant)));
  const double slo = slo_seconds(tenant);
  const double now = expected(memory, tenant.groups);
  const uint32_t needed = std::min(fewest_that_meet(memory, slo * (1 - kBand)), most);
  return beside_band(now, slo, needed, std::min(tenant.groups, most));
}

// The same for tenants that share a set; PackNeeds::kNever when they cannot. The knee of one is no
// limit for all.
uint32_t SloPolicy::demand_of_all(Members members) const {
  for (const SloTenant* const tenant : members)
    if (!can_share(*tenant)) return PackNeeds::kNever;
  const uint32_t most = most_of_all(members), present = groups_of_all(members);
  const auto all = std::views::iota(1U, most + 1);
  const auto found = std::ranges::partition_point(
      all, [&](uint32_t groups) { return worst_of(members, groups) > 1 - kBand; });
  if (found == all.end()) return PackNeeds::kNever;
  const uint32_t needed = *found;
  if (present == 0 || present > most) return needed;
  return beside_band(worst_of(members, present), 1, needed, present);
}

uint32_t SloPolicy::most_of_all(Members members) const {
  if (members.size() == 1) return most_of(*members.front());
  uint32_t most = groups_;
  for (const SloTenant* const tenant : members)
    if (tenant->most > 0) most = std::min(most, tenant->most);
  return most;
}

// Of the set that they have together; 0: none, or they do not all have it.
uint32_t SloPolicy::groups_of_all(Members members) const {
  const SloTenant& first = *members.front();
  const uint32_t set = memories_.at(first.id).set;
  const bool is_same = std::ranges::all_of(members, [&](const SloTenant* tenant) {
    return tenant->groups == first.groups && memories_.at(tenant->id).set == set;
  });
  return is_same ? first.groups : 0;
}

bool SloPolicy::can_share(const SloTenant& tenant) const {
  const Memory& memory = memories_.at(tenant.id);
  return tenant.can_share && !memory.seconds.empty() && rate(memory) >= 0;
}

bool SloPolicy::is_known(Members members) const {
  return std::ranges::none_of(
      members, [&](const SloTenant* tenant) { return memories_.at(tenant->id).seconds.empty(); });
}

// The longest expected response of those who have a set, in parts of their targets; 0: not known.
// Where there is no end to a queue, a large one that falls with the groups, so that more count.
double SloPolicy::response_of_set(Members members, uint32_t groups) const {
  constexpr double kEndless = 1e6;
  if (!is_known(members)) return 0;
  const double worst = worst_of(members, groups);
  return std::isfinite(worst) ? worst : kEndless / groups;
}

// The longest expected response of the members, in parts of their targets.
double SloPolicy::worst_of(Members members, uint32_t groups) const {
  double all = 0, rest = 0, worst = 0;  // rest: of what is worked on when a request comes
  for (const SloTenant* const tenant : members) {
    const Memory& memory = memories_.at(tenant->id);
    all += load(memory, groups);
    rest += load(memory, groups) * memory.seconds[groups - 1];
  }
  for (const SloTenant* const tenant : members) {
    const Memory& memory = memories_.at(tenant->id);
    const double others = all - load(memory, groups);
    if (others >= kFullLoad) return std::numeric_limits<double>::infinity();
    const double alone = memory.seconds[groups - 1];
    const double blocked = (rest - load(memory, groups) * alone) / (1 - others);
    const double service = std::max(alone / (1 - others), alone + blocked);
    worst = std::max(worst, response(memory, service) / slo_seconds(*tenant));
  }
  return worst;
}

// Part of the time in which it works, if alone on so many groups.
double SloPolicy::load(const Memory& memory, uint32_t groups) {
  if (rate(memory) < 0) return 1;
  return std::min(rate(memory) * memory.seconds[groups - 1], 1.0);
}

// Of requests, a second; < 0: a loop that never idles, or unknown.
double SloPolicy::rate(const Memory& memory) {
  return memory.rate >= 0 ? memory.rate : memory.completions;
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
