// SPDX-License-Identifier: Apache-2.0
// The module's table of refusals: each row, and each rule.
#include "kmod/rm/refusals.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "intercept/nvrm/abi.h"

namespace gpushare {
namespace {

struct Row {
  __u32 control;
  gs_rule rule;
  std::string_view reason;
};
constexpr Row kRows[] = {
#define GS_ROW(control, rule, reason) {control, GS_RULE_##rule, reason},
    GS_REFUSALS(GS_ROW)
#undef GS_ROW
};

TEST(KmodRefusals, EveryRowIsFoundAndGivesAReason) {
  std::set<__u32> controls;
  for (const Row& row : kRows) {
    EXPECT_TRUE(controls.insert(row.control).second) << std::hex << row.control << " twice";
    EXPECT_EQ(gs_rule_of(row.control), row.rule) << std::hex << row.control;
    EXPECT_FALSE(row.reason.empty());
  }
}

TEST(KmodRefusals, EveryControlThatTheProbeReportsHasARow) {
  for (const __u32 control :
       {GS_CTRL_GROUP_SCHEDULE, GS_CTRL_SET_TIMESLICE, GS_CTRL_GROUP_PREEMPT,
        GS_CTRL_SET_INTERLEAVE, GS_CTRL_MAKE_REALTIME, GS_CTRL_CHANNEL_SCHEDULE,
        GS_CTRL_CHANNEL_SET_INTERLEAVE, GS_CTRL_CHANNEL_RESTART_RUNLIST, GS_CTRL_CHANNEL_STOP,
        GS_CTRL_DISABLE_CHANNELS, GS_CTRL_CHANNEL_PREEMPTIVE_REMOVAL,
        GS_CTRL_RUNLIST_SET_SCHED_POLICY, GS_CTRL_OBJSCHED_SET_STATE}) {
    EXPECT_NE(gs_rule_of(control), GS_RULE_NONE) << std::hex << control;
  }
}

TEST(KmodRefusals, WhatIsNoSchedulingControlPasses) {
  for (const __u32 control : {GS_CTRL_GET_TIMESLICE, GS_CTRL_FB_GET_INFO, GS_CTRL_GPU_GET_ID, 0u})
    EXPECT_EQ(gs_rule_of(control), GS_RULE_NONE) << std::hex << control;
  const gs_target stranger{.is_own = false, .is_done = false};
  EXPECT_TRUE(gs_control_is_allowed(GS_RULE_NONE, &stranger, 0));
}

TEST(KmodRefusals, WhatCarriesObjectsIsLookedAtAndNotRefused) {
  for (const __u32 control : {0x3D05u, 0x3D06u, 0x3D0Bu, 0x3D0Cu})
    EXPECT_EQ(gs_rule_of(control), GS_RULE_CARRIES) << std::hex << control;
  EXPECT_EQ(gs_rule_of(0x3D08), GS_RULE_NONE) << "tells what is in a file";
}

struct Case {
  const char* description;
  gs_rule rule;
  gs_target target;
  __u64 value;
  bool is_allowed;
};

TEST(KmodRefusals, RulesAllowWhatTheDriverItselfDoesAtStart) {
  const gs_target own{true, false}, own_again{true, true}, foreign{false, false};
  for (const Case& c : {
           Case{"own group, first time", GS_RULE_FIRST_OWN, own, 1, true},
           Case{"own group, again", GS_RULE_FIRST_OWN, own_again, 1, GS_MAY_SCHEDULE_AGAIN},
           Case{"foreign group", GS_RULE_FIRST_OWN, foreign, 1, false},
           Case{"the slice of the start", GS_RULE_FIRST_SLICE, own, 2048, true},
           Case{"a shorter slice", GS_RULE_FIRST_SLICE, own, 1, true},
           Case{"a longer slice", GS_RULE_FIRST_SLICE, own, 2049, false},
           Case{"a slice beyond 32 bits", GS_RULE_FIRST_SLICE, own, (1ULL << 32) + 1, false},
           Case{"a second slice", GS_RULE_FIRST_SLICE, own_again, 1, false},
           Case{"a foreign slice", GS_RULE_FIRST_SLICE, foreign, 1, false},
           Case{"an end of one's own", GS_RULE_OWN, own_again, 0, true},
           Case{"an end of another's", GS_RULE_OWN, foreign, 0, false},
           Case{"kernels that leave at once", GS_RULE_PREEMPTION, foreign, 2, true},
           Case{"kernels that leave when they have ended", GS_RULE_PREEMPTION, own, 0, false},
           Case{"a freeze of one's own", GS_RULE_NEVER, own, 0, false},
       }) {
    EXPECT_EQ(gs_control_is_allowed(c.rule, &c.target, c.value), c.is_allowed) << c.description;
  }
}

}  // namespace
}  // namespace gpushare
