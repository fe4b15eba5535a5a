// SPDX-License-Identifier: Apache-2.0
// PackHistory: which tenants with a target share a partition (a pack), because there are not enough
// groups for one each (pack.h; where even that is not enough: give_up.h). Tenants that share go on
// to share, with the same ones: they are put together anew only when that has been clearly better
// for kPatience decisions, or nothing else fits, and taken apart when all have fitted alone for
// kCalm decisions. A tenant that cannot share does so only when there are more packs than groups.
// Pure but for what it remembers. A decision takes 0.1 ms for 14 tenants, 4 ms for 32, 14 ms for
// 64, at worst (bench/results/slo_decision).
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
