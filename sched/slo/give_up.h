// SPDX-License-Identifier: Apache-2.0
// GiveUp: packs (sched/slo/pack.h) that fit into the groups that there are. Where they do not,
// first what is to spare is given up, then targets: of those that make their packs as large as they
// are, the one by which most is saved, a notch at a time, so that as many as can be are met. Where
// that does not help either, none is. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/slo/pack.h"

namespace gpushare {

class GiveUp {
 public:
  static constexpr int kMostNotches = 12;  // of one target
  static constexpr int kWorth = 2;         // groups or notches that make one plan clearly better

  // `packs` of `tenants` in all, put together further where they must be; with `improves` wherever
  // that saves anything, and whoever is better off elsewhere goes there. `available`: groups.
  // `needs` outlives it.
  GiveUp(size_t tenants, PackList packs, bool improves, uint32_t available, const PackNeeds& needs);

  bool fits() const { return total_demand(packs_) <= available_; }
  // Notches in all; what is to spare is one.
  int given_up() const;
  bool is_clearly_better_than(const GiveUp& other) const;
  // The packs; what is given up for them is told (PackNeeds). Of several plans of the same needs
  // only one can hold.
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
