// SPDX-License-Identifier: Apache-2.0
// The policies that there are. A new policy is a file (or a folder) below this room, and one line
// in policies.cc: docs/writing_a_policy.md.
#pragma once

#include <vector>

#include "sched/policy/entry.h"
#include "sched/slo/decider.h"

namespace gpushare {

class KneeStore;
class LengthHistory;

// The first one runs on every GPU for which no other is chosen. Both outlive what is made and may
// be null: what `slo` finds of programs is then not kept, and `srtf` learns no lengths.
// `decisions`: where `slo` decides.
std::vector<PolicyEntry> all_policies(KneeStore* knees = nullptr,
                                      const LengthHistory* lengths = nullptr,
                                      SloDecisions decisions = SloDecisions::kInPlan);

}  // namespace gpushare
