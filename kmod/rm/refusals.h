/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The controls that give GPU time or take it, and what is done about each when it comes from
 * anyone but the agent. One table: the filter, its tests and the events derive from it. Pure; also
 * compiled in user space, by tests/kmod.
 *
 *   NEVER         refused
 *   FIRST_OWN     allowed once for each group or channel that the caller itself created: the CUDA
 *                 driver puts each of its groups on the runlist once, at start. Whether again is
 *                 GS_MAY_SCHEDULE_AGAIN
 *   FIRST_SLICE   allowed once for each such group, up to GS_START_SLICE_US: the CUDA driver sets
 *                 its graphics group to 2048 us at start
 *   OWN           allowed on what the caller itself created
 *
 * Gone through for it: every control that RM exports to a program without privileges (its nvoc
 * tables in open-gpu-kernel-modules 580.142: 758, of 1348). What touches channels, engines or
 * clocks and has no row:
 *
 *   RM itself alone: what is INTERNAL or KERNEL_PRIVILEGED there, so GPU_EVICT_CTX (0x2080012C),
 *     the internal forms of SCHEDULE and SET_TIMESLICE (0xA06C0201, 0xA06C0202), vGPU's MIG time
 *     slices (0x2080400F), TOGGLE_ACTIVE_CHANNEL_SCHEDULING (0x20800AC3)
 *   the caller's own client: IDLE_CHANNELS (0x00801714, 0x00000283, and the ioctl 0x41; RM refuses
 *     others' channels) waits for its channels; RESET_CHANNEL (0x906F0102, 0x506F0105), BIND
 *     (0xA06C0102, 0xA06F0104), the TPC partition mode (0x00801108, 0x00900101, 0x2080122C), the
 *     saving of an engine's context (0xB06F0111), CTXSW_ZCULL_* and *_PM_* (0x20801205 to
 *     0x2080120E) change its own state
 *   the caller's own channel, made by libcuda at the start of each program, so not to be refused:
 *     SET_CTXSW_PREEMPTION_MODE (0x20801210). In its mode wait-for-idle a kernel leaves the GPU
 *     late; the time is charged all the same
 *   debuggers, RM checks the right to debug: class 0x83DE
 *   how fast a GPU is, for all alike, not who runs: PERF_BOOST (0x2080200A, made by libcuda),
 *     CUDA_LIMIT (0x00801909), RATED_TDP (0x2080206F), power states (0x20800112, 0x2080205B,
 *     0x20802092)
 *   MIG and vGPU, by capabilities of their own: 0x20800174, classes 0xC637, 0xA081, 0xA084
 *   the watchdog, when a channel that hangs is ended: 0x2080220A to 0x20802210
 *   opaque: controls with bit 15 and of class 0x2081 go to the firmware as they are; what they do
 *     is not public
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
 * May a group be put on the runlist, or taken off it, after it was put there once? It would come to
 * stand behind or before others by its own choice, and what the driver does with one that the
 * agent has frozen has not been seen. No program is known that does it: libcuda schedules each
 * group once, at start.
 */
#define GS_MAY_SCHEDULE_AGAIN false

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
		return target->is_own && (!target->is_done || GS_MAY_SCHEDULE_AGAIN);
	case GS_RULE_FIRST_SLICE:
		return target->is_own && !target->is_done && value <= GS_START_SLICE_US;
	default:
		return false;
	}
}

#endif /* GPUSHARE_REFUSALS_H */
