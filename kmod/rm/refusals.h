/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of the controls that give GPU time or take it, and of what is done about each when it
 * comes from any process but the agent. The filter, its tests and the events derive from it. This
 * header is pure, and tests/kmod also compile it in user space. Which controls have no row, and
 * why, stands in README.md under "Controls that pass".
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

/*
 * May a group be put on the runlist, or taken off it, after it was put there once? The program
 * would choose whether it stands before or behind others, and it has not been seen what the driver
 * does with a group that the agent has frozen. No program is known that does it: libcuda schedules
 * each group once, at its start.
 */
#define GS_MAY_SCHEDULE_AGAIN false

/**
 * enum gs_rule - What is done about a control.
 * @GS_RULE_NONE: It is not a scheduling control, and passes.
 * @GS_RULE_NEVER: It is refused.
 * @GS_RULE_FIRST_OWN: It is allowed once for each group or channel that the caller itself created,
 *	because the CUDA driver puts each of its groups on the runlist once, at its start.
 *	GS_MAY_SCHEDULE_AGAIN says whether it is allowed again.
 * @GS_RULE_FIRST_SLICE: It is allowed once for each such group, up to GS_START_SLICE_US, because
 *	the CUDA driver sets its graphics group to 2048 us at its start.
 * @GS_RULE_OWN: It is allowed on what the caller itself created.
 * @GS_RULE_PREEMPTION: It is allowed unless kernels would not leave the GPU before they end.
 * @GS_RULE_CARRIES: It is no scheduling control. It carries objects by a file, which
 *	filter/carry.c follows.
 */
enum gs_rule {
	GS_RULE_NONE,
	GS_RULE_NEVER,
	GS_RULE_FIRST_OWN,
	GS_RULE_FIRST_SLICE,
	GS_RULE_OWN,
	GS_RULE_PREEMPTION,
	GS_RULE_CARRIES,
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
	ROW(RM_CTRL_GROUP_PREEMPT, OWN, "takes a group off the GPU; libcuda does so at its end")   \
	ROW(RM_CTRL_SET_INTERLEAVE, NEVER, "how often a group stands on the runlist")              \
	ROW(RM_CTRL_CHANNEL_SET_INTERLEAVE, NEVER, "how often a channel stands on the runlist")    \
	ROW(RM_CTRL_MAKE_REALTIME, NEVER, "lets a group pass all others")                          \
	ROW(RM_CTRL_CHANNEL_RESTART_RUNLIST, NEVER, "starts the runlist again: passes others")     \
	ROW(RM_CTRL_CHANNEL_STOP, OWN, "ends a channel")                                           \
	ROW(RM_CTRL_RUNLIST_SET_SCHED_POLICY, NEVER, "changes the order of a whole runlist")       \
	ROW(RM_CTRL_OBJSCHED_SET_STATE, NEVER, "changes the software scheduler's shares")          \
	ROW(RM_CTRL_STOP_RUNLIST, NEVER, "stops an engine for everyone")                           \
	ROW(RM_CTRL_START_RUNLIST, NEVER, "starts an engine that was stopped")                     \
	ROW(RM_CTRL_SET_PREEMPTION_MODE, PREEMPTION,                                               \
	    "whether a kernel leaves the GPU before its end")                                      \
	ROW(RM_CTRL_CONFIG_CTXSW_TIMEOUT, NEVER, "how long a context may refuse to leave the GPU")

/* The bits 8 to 12 of a control, which are the low ones of its category, as one bit of a word. */
#define GS_CATEGORY_BIT(control) (1u << ((control) >> 8 & 31))

/**
 * gs_rule_of() - Look up what is done about a control.
 * @cmd: The number of the control in RM.
 *
 * One look at five bits tells most of the controls apart that pass.
 *
 * Return: Its rule; GS_RULE_NONE for the hundreds that pass.
 */
static inline enum gs_rule gs_rule_of(__u32 cmd)
{
#define GS_ROW(control, rule, reason) | GS_CATEGORY_BIT(control)
	const __u32 categories = GS_CATEGORY_BIT(RM_CTRL_EXPORT_OBJECT) GS_REFUSALS(GS_ROW);
#undef GS_ROW

	if (!(categories >> (cmd >> 8 & 31) & 1))
		return GS_RULE_NONE;
	switch (cmd) {
#define GS_ROW(control, rule, reason)                                                              \
	case control:                                                                              \
		return GS_RULE_##rule;
		GS_REFUSALS(GS_ROW)
#undef GS_ROW
	case RM_CTRL_EXPORT_OBJECT:
	case RM_CTRL_IMPORT_OBJECT:
	case RM_CTRL_EXPORT_OBJECTS:
	case RM_CTRL_IMPORT_OBJECTS:
		return GS_RULE_CARRIES;
	default:
		return GS_RULE_NONE;
	}
}

/**
 * struct gs_target - What is known of the object that a control is for.
 * @is_own: The caller created it, and it is of the kind that the control is for.
 * @is_done: Such a control of it was let through before.
 */
struct gs_target {
	bool is_own;
	bool is_done;
};

/**
 * gs_control_is_allowed() - May a process that is not the agent make this control?
 * @rule: The rule of the control.
 * @target: The object of the control.
 * @value: See rm_control_value(); for GS_RULE_FIRST_SLICE it is the slice in us.
 *
 * Return: True if it may.
 */
static inline bool gs_control_is_allowed(enum gs_rule rule, const struct gs_target *target,
					 __u64 value)
{
	switch (rule) {
	case GS_RULE_NONE:
	case GS_RULE_CARRIES:
		return true;
	case GS_RULE_OWN:
		return target->is_own;
	case GS_RULE_FIRST_OWN:
		return target->is_own && (!target->is_done || GS_MAY_SCHEDULE_AGAIN);
	case GS_RULE_FIRST_SLICE:
		return target->is_own && !target->is_done && value <= GS_START_SLICE_US;
	case GS_RULE_PREEMPTION:
		return value != RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE;
	default:
		return false;
	}
}

#endif /* GPUSHARE_REFUSALS_H */
