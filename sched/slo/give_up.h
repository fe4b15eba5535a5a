// SPDX-License-Identifier: Apache-2.0
// GiveUp: makes packs (sched/slo/pack.h) fit into the SM groups that there are. If they do not fit,
// what they have to spare is given up first, then targets, a notch at a time: of the targets that
// make their packs as large as they are, the one by which most is saved. So as many targets as
// possible are met. If that does not help either, no target is given up. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/slo/pack.h"

namespace gpushare {

class GiveUp {
 public:
  static constexpr int kMostNotches = 12;  // of one target
  static constexpr int kWorth = 2;         // groups or notches that make one plan clearly better

  // Puts `packs` together further where they must be. With `improves` it does so wherever that
  // saves anything, and moves tenants that are better off elsewhere. `tenants` is the number of all
  // tenants, `available` the number of groups. `needs` must outlive this object.
  GiveUp(size_t tenants, PackList packs, bool improves, uint32_t available, const PackNeeds& needs);

  bool fits() const { return total_demand(packs_) <= available_; }
  // Returns the notches that are given up in all. What there was to spare counts as one.
  int given_up() const;
  bool is_clearly_better_than(const GiveUp& other) const;
  // Returns the packs, and tells PackNeeds what is given up for them. Of several plans with the
  // same needs only one can be carried out.
  PackList carry_out() &&;

 private:
  void tell() const;
  void reckon();
  bool give_up_one();

  const PackNeeds* needs_;  // never null
  uint32_t available_;
  bool has_spare_ = true;
  std::vector<int> notches_;  // by place
  PackList packs_;
};

}  // namespace gpushare
