// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/exchange.h"

#include <algorithm>

namespace gpushare {

void Exchange::begin(Time now, std::span<const Mover> shrink, std::span<const Mover> grow) {
  Nanos longest{};
  for (const auto movers : {shrink, grow}) {
    for (const Mover& mover : movers) {
      if (mover.drain <= longest) continue;
      longest = mover.drain;
      first_ = mover.tenant;
    }
  }
  if (shrink.empty() || grow.empty() || longest < kWorthIt || longest > kLongestDrain) return;
  now_ = begun_ = now;
  first_went_ = now + kPatience;
  has_gone_ = false;
  give_up_at_ = first_went_ + longest + kPatience;
  for (const auto movers : {shrink, grow})
    for (const Mover& mover : movers)
      told_[mover.tenant] = {.from = mover.from,
                             .to = mover.to,
                             .grows = movers.data() == grow.data(),
                             .after = longest - mover.drain};
}

// The first one is told at once, though it goes later.
Time Exchange::at(const Told& told) const {
  const auto first = told_.find(first_);
  return first != told_.end() && &first->second == &told ? begun_ : first_went_ + told.after;
}

void Exchange::advance(Time now, const SmSets& sets) {
  now_ = now;
  const bool is_over = std::ranges::all_of(told_, [&](const auto& entry) {
    const auto& [tenant, told] = entry;
    const SmGroups assigned = sets.assigned(tenant);
    return assigned == 0 || (at(told) <= now && assigned == told.to);
  });
  if (is_over || now >= give_up_at_) told_.clear();
}

void Exchange::note_gone(uint32_t tenant) {
  if (tenant != first_ || has_gone_ || !is_under_way()) return;
  has_gone_ = true;
  first_went_ = std::min(first_went_, now_);
}

SmGroups Exchange::groups(uint32_t tenant, SmGroups assigned) const {
  const auto found = told_.find(tenant);
  if (found == told_.end() || assigned == 0) return assigned;
  const Told& told = found->second;
  const bool is_told = at(told) <= now_;
  if (told.grows) return is_told ? told.to : assigned;
  return is_told || assigned != told.to ? assigned : told.from;
}

Time Exchange::told_at(uint32_t tenant, Time otherwise) const {
  const auto found = told_.find(tenant);
  return found == told_.end() ? otherwise : at(found->second);
}

Time Exchange::next() const {
  Time next = Time::max();
  for (const auto& [tenant, told] : told_)
    if (const Time then = at(told); then > now_) next = std::min(next, then);
  return next;
}

}  // namespace gpushare
