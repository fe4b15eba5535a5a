// SPDX-License-Identifier: Apache-2.0
// PackHistory: which tenants with a target share one set of SMs (a pack), because there are not
// enough for a set each. Most services idle most of the time: alone each needs as many SMs as its
// target asks for while it works, together hardly more. So they are put together wherever that
// saves any (sched/slo/pack.h), and what they do not need is for others; where even that is not
// enough, targets are given up (sched/slo/give_up.h).
//
// Who shares goes on to share, with the same: they are put together anew only when that has been
// clearly better for kPatience decisions, or nothing else fits; and taken apart when everybody has
// fitted alone for kCalm decisions. Whoever cannot share is put together with others only when
// there are more sets than groups.
//
// Pure but for what it remembers of the last decision. A decision takes 0.1 ms for 14 tenants, 4 ms
// for 32, 14 ms for 64, at worst (bench/results/slo_decision.jsonl); of more than 32 nobody goes
// elsewhere while they fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/slo/pack.h"

namespace gpushare {

class PackHistory {
 public:
  static constexpr int kCalm = 5, kPatience = 3;

  // `ids` names the tenants from call to call. `available` >= 1: groups for all of them, and so the
  // most packs. In the order of the first members. More than `available` in all: sharing does not
  // help further. `counts`: a decision on new measurements, of those that kCalm and kPatience are
  // about.
  PackList decide(std::span<const uint32_t> ids, uint32_t available, const PackNeeds& needs,
                  bool counts = true);

 private:
  PackList kept(std::span<const uint32_t> ids, uint32_t available, const PackNeeds& needs) const;
  PackList packed(PackList kept, PackList alone, uint32_t available, const PackNeeds& needs,
                  bool counts);
  void force(std::span<const uint32_t> ids, uint32_t available, PackList& packs) const;
  void keep(std::span<const uint32_t> ids, const PackList& packs);

  std::vector<std::vector<uint32_t>> shared_;  // ids of each pack of several
  int fitted_alone_ = 0;                       // decisions in a row
  int better_ = 0;                             // the same, in which others would have been
};

}  // namespace gpushare
