// SPDX-License-Identifier: Apache-2.0
// The smallest partition in which a process may run: what its tenant asks for (sm_min), what it was
// shown as its GPU (sm_shown), and what its program was found to need (widening.h). A kernel whose
// blocks wait for each other never ends where they are not on the GPU at once, so a partition is
// never made smaller than that. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/policy/sm_geometry.h"
#include "sched/spatial/sm_sets.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

struct LeastPartition {
  uint32_t percent = 0;   // of each GPU's SMs, rounded up to whole groups
  uint32_t as_share = 0;  // the same, rounded as sm_percent is
  uint32_t sms = 0;       // that a kernel needs which did not end
  // That a kernel needs which runs in the whole GPU otherwise. Its partition may be smaller.
  uint32_t wished_sms = 0;

  bool operator==(const LeastPartition&) const = default;
};

// What programs of such a tenant are shown as their GPU; nothing is asked for: they are shown all
// of it. It is what the tenant asks for, so that it does not depend on who else is there.
LeastPartition shown_partition(const TenantSettings& settings);

// The fewest groups that surely have what the tenant asks for; at least one and at most all.
uint32_t groups_of_least(const LeastPartition& least, const SmGeometry& geometry);
// The same for so many SMs; 0: none.
uint32_t groups_of_sms(uint32_t sms, const SmGeometry& geometry);

// What the programs of a set were found to need beyond what it is entitled to, in groups.
struct SetNeeds {
  uint32_t at_once = 0;  // or a kernel never ends
  uint32_t wished = 0;
};
// Of each of the two the larger one.
void raise(SetNeeds& needs, const SetNeeds& by);

// Nobody loses what it is entitled to, because another's kernel needs it: a set gets groups that no
// other set is entitled to. For what it needs at once beyond that it is joined with others, those
// with the largest shares first, until the set is large enough: they are on the same SMs then.
// `needs`: of each of `sets`. `groups`: of the GPU.
//   16 groups, A is entitled to 7 and B to 9: B wishes for 15, so both keep what they have; B needs
//   15 at once, so A and B share 16.
void grant_needs(std::vector<PlannedSet>& sets, std::vector<SetNeeds> needs, uint32_t groups);

// Where the leasts of all sets together are more than there is, those that ask for most share one:
// two sets become one, until what is left fits. Sets without a least of their own (1) are joined
// only with one that has, or, the smallest first, where there are more sets than groups. `groups`:
// of the GPU.
//   16 groups, A asks for 12, B for 8, C for 1: A and B share 12.
void share_what_does_not_fit(std::vector<PlannedSet>& sets, uint32_t groups);

}  // namespace gpushare
