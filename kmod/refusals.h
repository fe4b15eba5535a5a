/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The controls that give GPU time or take it, and what is done about each when it comes from
 * anyone but the agent. One table: the filter, its tests and the events derive from it. Pure; also
 * compiled in user space, by tests/kmod.
 *
 *   NEVER         refused
 *   FIRST_OWN     allowed once for each group or channel that the caller itself created: the CUDA
 *                 driver puts each of its groups on the runlist once, at start
 *   FIRST_SLICE   allowed once for each such group, up to GS_START_SLICE_US: the CUDA driver sets
 *                 its graphics group to 2048 us at start
 *   OWN           allowed on what the caller itself created
 */
#ifndef GPUSHARE_REFUSALS_H
#define GPUSHARE_REFUSALS_H

#include <linux/types.h>
#ifndef __KERNEL__
#include <stdbool.h>
#include <stddef.h>
#endif

#include "rm_abi.h"

#define GS_START_SLICE_US 2048

enum gs_rule {
	GS_RULE_NONE, /* not a scheduling control */
	GS_RULE_NEVER,
	GS_RULE_FIRST_OWN,
	GS_RULE_FIRST_SLICE,
	GS_RULE_OWN,
};

/* ROW(control, rule, reason) */
#define GS_REFUSALS(ROW)                                                                           \
	ROW(RM_CTRL_DISABLE_CHANNELS, NEVER, "freezes and thaws channels of any process")          \
	ROW(RM_CTRL_CHANNEL_PREEMPTIVE_REMOVAL, NEVER, "takes channels off the GPU")               \
	ROW(RM_CTRL_DISABLE_CHANNELS_FOR_KEY_ROTATION, NEVER, "freezes every channel of a GPU")    \
	ROW(RM_CTRL_DISABLE_CHANNELS_FOR_KEY_ROTATION_V2, NEVER, "freezes every channel of a GPU") \
	ROW(RM_CTRL_DISABLE_USERMODE_CHANNELS, NEVER, "freezes every program's channels")          \
	ROW(RM_CTRL_SET_CHANNEL_HW_STATE, NEVER, "sets the enable bit of a channel: a thaw")       \
	ROW(RM_CTRL_GROUP_SCHEDULE, FIRST_OWN, "puts a group on the runlist or takes it off")      \
	ROW(RM_CTRL_CHANNEL_SCHEDULE, FIRST_OWN, "the same for a channel outside a group")         \
	ROW(RM_CTRL_SET_TIMESLICE, FIRST_SLICE, "sets a group's share of GPU time")                \
	ROW(RM_CTRL_SET_CHANNEL_PROPERTIES, NEVER, "sets or switches off a channel's time slice")  \
	ROW(RM_CTRL_GROUP_PREEMPT, NEVER, "takes a group off the GPU now")                         \
	ROW(RM_CTRL_SET_INTERLEAVE, NEVER, "how often a group stands on the runlist")              \
	ROW(RM_CTRL_CHANNEL_SET_INTERLEAVE, NEVER, "how often a channel stands on the runlist")    \
	ROW(RM_CTRL_MAKE_REALTIME, NEVER, "lets a group pass all others")                          \
	ROW(RM_CTRL_CHANNEL_RESTART_RUNLIST, NEVER, "starts the runlist again: passes others")     \
	ROW(RM_CTRL_CHANNEL_STOP, OWN, "ends a channel")                                           \
	ROW(RM_CTRL_RUNLIST_SET_SCHED_POLICY, NEVER, "changes the order of a whole runlist")       \
	ROW(RM_CTRL_OBJSCHED_SET_STATE, NEVER, "changes the software scheduler's shares")          \
	ROW(RM_CTRL_STOP_RUNLIST, NEVER, "stops an engine for everyone")                           \
	ROW(RM_CTRL_START_RUNLIST, NEVER, "starts an engine that was stopped")                     \
	ROW(RM_CTRL_CONFIG_CTXSW_TIMEOUT, NEVER, "how long a context may refuse to leave the GPU")

/**
 * gs_rule_of() - what is to be done about a control
 * @cmd: RM control number
 *
 * Return: its rule; GS_RULE_NONE for the hundreds that have nothing to do with scheduling.
 */
static inline enum gs_rule gs_rule_of(__u32 cmd)
{
	switch (cmd) {
#define GS_ROW(control, rule, reason)                                                              \
	case control:                                                                              \
		return GS_RULE_##rule;
		GS_REFUSALS(GS_ROW)
#undef GS_ROW
	default:
		return GS_RULE_NONE;
	}
}

/**
 * struct gs_target - what is known of the object that a control is for
 * @is_own: the caller created it, and it is of the kind that the control is for
 * @is_done: such a control was let through for it before
 */
struct gs_target {
	bool is_own;
	bool is_done;
};

/**
 * gs_control_is_allowed() - may someone who is not the agent make this control?
 * @rule: of the control, not GS_RULE_NONE
 * @target: of the control
 * @value: first 8 bytes of its parameters; FIRST_SLICE: the slice in us
 *
 * Return: true when it may.
 */
static inline bool gs_control_is_allowed(enum gs_rule rule, const struct gs_target *target,
					 __u64 value)
{
	switch (rule) {
	case GS_RULE_NONE:
		return true;
	case GS_RULE_OWN:
		return target->is_own;
	case GS_RULE_FIRST_OWN:
		return target->is_own && !target->is_done;
	case GS_RULE_FIRST_SLICE:
		return target->is_own && !target->is_done && value <= GS_START_SLICE_US;
	default:
		return false;
	}
}

#endif /* GPUSHARE_REFUSALS_H */
