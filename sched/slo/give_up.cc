// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/give_up.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpushare {
namespace {

constexpr int kMostTried = 100;  // notches, so that a plan takes milliseconds at most

bool is_of_one(const Pack& pack) { return pack.members.size() == 1; }

}  // namespace

GiveUp::GiveUp(size_t tenants, PackList packs, bool improves, uint32_t available,
               const PackNeeds& needs)
    : needs_(&needs), available_(available), notches_(tenants), packs_(std::move(packs)) {
  const auto put_together = [&] {
    packs_ = merged(std::move(packs_), improves ? 0 : available, needs);
    if (improves) packs_ = improved(std::move(packs_), needs);
  };
  tell();
  reckon();
  put_together();
  if (!fits() && needs.spare) {
    has_spare_ = false;
    tell();
    reckon();
    put_together();
  }
  const PackList before = packs_;
  for (int tried = 0; !fits() && tried < kMostTried && give_up_one(); ++tried)
    packs_ = merged(std::move(packs_), improves ? 0 : available, needs);
  if (fits()) return;
  // Giving up brought nothing.
  packs_ = before;
  std::ranges::fill(notches_, 0);
}

int GiveUp::given_up() const {
  return std::accumulate(notches_.begin(), notches_.end(), has_spare_ ? 0 : 1);
}

bool GiveUp::is_clearly_better_than(const GiveUp& other) const {
  if (fits() != other.fits()) return fits();
  if (given_up() != other.given_up()) return given_up() + kWorth <= other.given_up();
  return total_demand(packs_) + kWorth <= total_demand(other.packs_);
}

PackList GiveUp::carry_out() && {
  tell();
  return std::move(packs_);
}

void GiveUp::tell() const {
  if (needs_->spare) needs_->spare(has_spare_);
  for (uint32_t place = 0; needs_->give_up && place < notches_.size(); ++place)
    needs_->give_up(place, notches_[place]);
}

// Returns what the packs need with the targets as they are now. A pack that misses a target with
// any number of groups needs what it needed before.
void GiveUp::reckon() {
  for (Pack& pack : packs_)
    if (const uint32_t demand = demand_of(pack.members, *needs_); demand != PackNeeds::kNever)
      pack.demand = demand;
}

// Returns, of the tenants that make their packs as large as they are, the one that saves most by
// giving up a notch; where none saves anything, the one in the largest pack.
bool GiveUp::give_up_one() {
  if (!needs_->give_up || std::ranges::all_of(packs_, is_of_one)) return false;
  std::pair<int64_t, int64_t> most{-1, -1};
  Pack* chosen = nullptr;
  uint32_t who = 0, demand = 0;
  for (Pack& pack : packs_) {
    if (is_of_one(pack) && !needs_->can_share(pack.members.front())) continue;
    const uint32_t place = needs_->binding(pack.members);
    if (place == PackNeeds::kNever || notches_[place] == kMostNotches) continue;
    needs_->give_up(place, notches_[place] + 1);
    const uint32_t then = std::min(demand_of(pack.members, *needs_), pack.demand);
    needs_->give_up(place, notches_[place]);
    const std::pair<int64_t, int64_t> saves{int64_t{pack.demand} - then, pack.demand};
    if (saves <= most) continue;
    most = saves;
    chosen = &pack;
    who = place;
    demand = then;
  }
  if (chosen == nullptr) return false;
  needs_->give_up(who, ++notches_[who]);
  chosen->demand = demand;
  return true;
}

}  // namespace gpushare
