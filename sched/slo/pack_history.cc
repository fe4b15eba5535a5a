// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/pack_history.h"

#include <algorithm>
#include <utility>

#include "sched/slo/give_up.h"

namespace gpushare {
namespace {

using Packs = PackList;

Packs each_alone(size_t count, const PackNeeds& needs) {
  Packs packs;
  packs.reserve(count);
  for (uint32_t place = 0; place < count; ++place) packs.push_back({{place}, needs.apart(place)});
  return packs;
}

}  // namespace

Packs PackHistory::decide(std::span<const uint32_t> ids, uint32_t available, const PackNeeds& needs,
                          bool counts) {
  for (uint32_t place = 0; needs.give_up && place < ids.size(); ++place) needs.give_up(place, 0);
  if (needs.spare) needs.spare(true);
  Packs alone = each_alone(ids.size(), needs);
  const bool fits_alone = total_demand(alone) <= available;
  if (!fits_alone) {
    fitted_alone_ = 0;
  } else if (counts) {
    ++fitted_alone_;
  }
  Packs packs = kept(ids, available, needs);
  if (fits_alone &&
      (shared_.empty() || fitted_alone_ >= kCalm || total_demand(packs) > available)) {
    shared_.clear();
    better_ = 0;
    return alone;
  }
  if (!fits_alone) packs = packed(std::move(packs), std::move(alone), available, needs, counts);
  force(ids, available, packs);
  keep(ids, packs);
  return packs;
}

// Packs that were made for other loads, or from what was known then, may be in the way of better
// ones; but noise must not make a tenant move.
Packs PackHistory::packed(Packs kept, Packs alone, uint32_t available, const PackNeeds& needs,
                          bool counts) {
  const size_t tenants = alone.size();
  if (shared_.empty()) return GiveUp(tenants, std::move(alone), true, available, needs).carry_out();
  GiveUp better(tenants, kept, true, available, needs);
  if (GiveUp anew(tenants, std::move(alone), true, available, needs);
      anew.is_clearly_better_than(better))
    better = std::move(anew);
  GiveUp plan(tenants, std::move(kept), false, available, needs);
  better_ = better.is_clearly_better_than(plan) ? better_ + counts : 0;
  const bool is_urgent = better.fits() && !plan.fits();
  if (better_ < kPatience && !is_urgent) return std::move(plan).carry_out();
  better_ = 0;
  return std::move(better).carry_out();
}

// Returns the packs as they were, without the tenants that have ended or cannot share any more, and
// with each newcomer in a pack of its own. A pack that has too much work stays: apart its members
// would need even more.
Packs PackHistory::kept(std::span<const uint32_t> ids, uint32_t available,
                        const PackNeeds& needs) const {
  Packs packs;
  std::vector<bool> is_in(ids.size());
  for (const std::vector<uint32_t>& sharers : shared_) {
    Pack pack;
    for (uint32_t place = 0; place < ids.size(); ++place)
      if (std::ranges::find(sharers, ids[place]) != sharers.end() && needs.can_share(place))
        pack.members.push_back(place);
    if (pack.members.size() < 2) continue;
    pack.demand = needs.together(pack.members);
    if (pack.demand == PackNeeds::kNever) pack.demand = available + 1;
    for (const uint32_t place : pack.members) is_in[place] = true;
    packs.push_back(std::move(pack));
  }
  for (uint32_t place = 0; place < ids.size(); ++place)
    if (!is_in[place]) packs.push_back({{place}, needs.alone(place)});
  sort_by_member(packs);
  return packs;
}

// Leaves no more packs than there are groups, whatever that costs: joins those that were together
// before, and then the two that need least. What they need together is not known; it is taken to be
// what they need apart.
void PackHistory::force(std::span<const uint32_t> ids, uint32_t available, Packs& packs) const {
  const auto pack_before = [&](const Pack& pack) {
    return std::ranges::find_if(shared_,
                                [&](const std::vector<uint32_t>& sharers) {
                                  return std::ranges::find(sharers, ids[pack.members.front()]) !=
                                         sharers.end();
                                }) -
           shared_.begin();
  };
  const auto put_together = [&](size_t first, size_t second) {
    Pack& into = packs[first];
    into.members = members_of_both(into, packs[second]);
    into.demand = std::min(into.demand + packs[second].demand, available);
    packs.erase(packs.begin() + static_cast<std::ptrdiff_t>(second));
  };
  for (size_t i = 0; i < packs.size() && packs.size() > available; ++i) {
    const auto before = pack_before(packs[i]);
    if (before == std::ssize(shared_)) continue;
    for (size_t j = packs.size(); --j > i && packs.size() > available;)
      if (pack_before(packs[j]) == before) put_together(i, j);
  }
  sort_by_demand(packs);
  while (packs.size() > available && packs.size() > 1) {
    put_together(0, 1);
    const auto next = std::ranges::upper_bound(packs.begin() + 1, packs.end(), packs[0].demand, {},
                                               &Pack::demand);
    std::rotate(packs.begin(), packs.begin() + 1, next);
  }
  sort_by_member(packs);
}

void PackHistory::keep(std::span<const uint32_t> ids, const Packs& packs) {
  shared_.clear();
  for (const Pack& pack : packs) {
    if (pack.members.size() < 2) continue;
    std::vector<uint32_t>& sharers = shared_.emplace_back();
    for (const uint32_t place : pack.members) sharers.push_back(ids[place]);
  }
}

}  // namespace gpushare
