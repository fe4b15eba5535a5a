// SPDX-License-Identifier: Apache-2.0
// SloSizer: what tenants that share a set take there, and how large it must be.
#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "sched/slo/sizer.h"

namespace gpushare {
namespace {

constexpr double kLeastIdle = 1e-9;  // where there is more to do than can be
constexpr double kNotch = 1.25;      // by which a target is given up

}  // namespace

// For one or more; PackNeeds::kNever when they cannot share, or one would miss its target on all
// groups. The knee of one is no limit for all.
uint32_t SloSizer::demand_of_all(Members members) const {
  if (!std::ranges::all_of(members, [](const Served* one) { return can_share(*one); }))
    return PackNeeds::kNever;
  const uint32_t most = most_of_all(members), present = groups_of_all(members);
  const auto all = std::views::iota(1U, most + 1);
  const auto found = std::ranges::partition_point(
      all, [&](uint32_t groups) { return worst_of(members, groups) > aim_in_set(); });
  if (found == all.end()) return PackNeeds::kNever;
  if (present == 0 || present > most) return *found;
  return beside_band(worst_of(members, present), most_in_set(), band_in_set(), *found, present);
}

uint32_t SloSizer::most_of_all(Members members) const {
  if (members.size() == 1) return most_of(*members.front()->tenant);
  uint32_t most = groups_;
  for (const Served* const one : members)
    if (one->tenant->most > 0) most = std::min(most, one->tenant->most);
  return most;
}

// Of the set that they, and nobody else, have; 0: there is none.
uint32_t SloSizer::groups_of_all(Members members) const {
  const Served& first = *members.front();
  const uint32_t set = first.memory->set, groups = first.tenant->groups;
  const auto sharers = sharers_.find(set);
  if (set == kNoSet || sharers == sharers_.end() || sharers->second != members.size()) return 0;
  const bool is_same = std::ranges::all_of(members, [&](const Served* one) {
    return one->tenant->groups == groups && one->memory->set == set;
  });
  return is_same ? groups : 0;
}

bool SloSizer::can_share(const Served& one) {
  return one.tenant->can_share && !one.seconds.empty() && rate(*one.memory) >= 0;
}

bool SloSizer::is_known(Members members) {
  return std::ranges::none_of(members, [](const Served* one) { return one->seconds.empty(); });
}

// The longest expected response of those who have a set, in parts of their targets; 0: not known.
// Where there is no end to a queue, a large one that falls with the groups, so that more count.
double SloSizer::response_of_set(Members members, uint32_t groups) {
  constexpr double kEndless = 1e6;
  if (!is_known(members)) return 0;
  const double worst = worst_of(members, groups);
  return std::isfinite(worst) ? worst : kEndless / groups;
}

// see(member, its expected response in parts of its target), of those that share so many groups.
template <class See>
void SloSizer::see_each(Members members, uint32_t groups, const See& see) {
  double all = 0, kernels = 0;  // kernels: of what is worked on when one comes
  for (const Served* const one : members) {
    all += load(*one, groups);
    kernels += load(*one, groups) * one->seconds[groups - 1] / one->memory->launches;
  }
  for (const Served* const one : members) {
    const Memory& memory = *one->memory;
    const double own = load(*one, groups), others = all - own;
    const double alone = one->seconds[groups - 1], idle = std::max(1 - others, kLeastIdle);
    const double blocked = waits(memory) * (kernels - own * alone / memory.launches) / idle;
    const double service = std::max(alone / idle, alone + blocked);
    see(*one, others < kFullLoad ? response(memory, service) / one->target
                                 : std::numeric_limits<double>::infinity());
  }
}

// The longest expected response of the members, in parts of their targets.
double SloSizer::worst_of(Members members, uint32_t groups) {
  double worst = 0;
  see_each(members, groups,
           [&](const Served&, double response) { worst = std::max(worst, response); });
  return worst;
}

// Who of them needs so many groups as they all do; nullptr: nobody, there is too much to do.
const SloSizer::Served* SloSizer::binding(Members members) const {
  if (!is_known(members)) return nullptr;
  uint32_t groups = most_of_all(members);
  if (!std::isfinite(worst_of(members, groups))) return nullptr;
  while (groups > 1 && worst_of(members, groups) <= aim_in_set()) --groups;
  double worst = 0;
  const Served* found = nullptr;
  see_each(members, groups, [&](const Served& one, double response) {
    if (response <= worst) return;
    worst = response;
    found = &one;
  });
  return found;
}

void SloSizer::give_up(Served& one, int notches) {
  one.given_up = notches;
  one.target = slo_seconds(*one.tenant) * std::pow(kNotch, notches);
}

// Part of the time in which it works, if alone on so many groups.
double SloSizer::load(const Served& one, uint32_t groups) {
  const double rate = SloSizer::rate(*one.memory);
  return rate < 0 ? 1 : std::min(rate * one.seconds[groups - 1], 1.0);
}

// Of requests, a second; < 0: a loop that never idles, or unknown.
double SloSizer::rate(const Memory& memory) {
  return memory.rate >= 0 ? memory.rate : memory.completions;
}

// How often it waits for a whole kernel of another that always works.
double SloSizer::waits(const Memory& memory) { return std::max(memory.launches / 2, 1.0); }

}  // namespace gpushare
