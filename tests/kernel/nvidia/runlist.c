// SPDX-License-Identifier: GPL-2.0
/*
 * Which group is on the GPU's compute engine at what time. Nothing runs in the background: each
 * call and each reading of the log first computes what has happened since the last one.
 *
 * The rules are as seen on an H200. Groups that can run take turns in order, each for its slice. A
 * change takes SN_SWITCH_COST_NS, in which no group runs. A context that is alone stays, and is not
 * logged, busy or idle. A context that is frozen leaves at once.
 *
 * Example: A (2000 us) and B (1000 us) are busy, and A starts at 0. Ends and starts are logged at
 * A- 2000, B+ 2080, B- 3080, A+ 3160, ...
 */
#include <linux/ktime.h>

#include "standin.h"

/* It is not CLOCK_MONOTONIC, so that a reader that forgets to convert is found out. */
#define GPU_CLOCK_AHEAD_NS 1700000000000000000ull

u64 sn_gpu_time(void)
{
	return ktime_get_ns() + GPU_CLOCK_AHEAD_NS;
}

void sn_runlist_init(struct sn_runlist *runlist)
{
	INIT_LIST_HEAD(&runlist->groups);
	runlist->at = sn_gpu_time();
}

static bool is_graphics(const struct sn_group *group)
{
	return group->engine >= GS_ENGINE_TYPE_GR0 && group->engine <= GS_ENGINE_TYPE_GR7;
}

static bool is_frozen(const struct sn_group *group)
{
	const struct sn_channel *channel;

	list_for_each_entry(channel, &group->channels, in_group)
		if (channel->freezes == 0)
			return false;
	return true;
}

static bool can_run(const struct sn_group *group)
{
	const struct sn_channel *channel;

	if (!group->is_scheduled || !is_graphics(group))
		return false;
	list_for_each_entry(channel, &group->channels, in_group)
		if (channel->is_busy && channel->freezes == 0)
			return true;
	return false;
}

/* The next group that could run instead of the resident one. */
static struct sn_group *waiting(const struct sn_runlist *runlist)
{
	struct sn_group *group;

	list_for_each_entry(group, &runlist->groups, in_runlist)
		if (group != runlist->resident && can_run(group))
			return group;
	return NULL;
}

static void leave(struct sn_runlist *runlist)
{
	struct sn_group *group = runlist->resident;

	sn_log_switch(group, GS_SWITCH_END, runlist->at);
	list_move_tail(&group->in_runlist, &runlist->groups);
	runlist->resident = NULL;
	runlist->ready_at = runlist->at + SN_SWITCH_COST_NS;
}

static void enter(struct sn_runlist *runlist, struct sn_group *group)
{
	runlist->resident = group;
	runlist->turn_end = runlist->at + group->slice_us * NSEC_PER_USEC;
	sn_log_switch(group, GS_SWITCH_START, runlist->at);
}

/* Lets the resident group run until @to, as far as it can. */
static void run(struct sn_runlist *runlist, u64 to)
{
	if (can_run(runlist->resident))
		runlist->resident->ran_ns += to - runlist->at;
	runlist->at = to;
}

void sn_runlist_advance(struct sn_gpu *gpu)
{
	struct sn_runlist *runlist = &gpu->runlist;
	u64 now = sn_gpu_time();

	while (runlist->at < now) {
		struct sn_group *next = waiting(runlist);

		if (runlist->resident && !next) {
			run(runlist, now);
			runlist->turn_end =
				now + runlist->resident->slice_us * NSEC_PER_USEC;
		} else if (runlist->resident) {
			if (can_run(runlist->resident) && runlist->at < runlist->turn_end)
				run(runlist, min(now, runlist->turn_end));
			else
				leave(runlist);
		} else if (!next || runlist->ready_at > now) {
			runlist->at = now;
		} else {
			runlist->at = max(runlist->at, runlist->ready_at);
			enter(runlist, next);
		}
	}
}

void sn_runlist_settle(struct sn_gpu *gpu)
{
	struct sn_runlist *runlist = &gpu->runlist;

	if (runlist->resident && is_frozen(runlist->resident))
		leave(runlist);
}

void sn_runlist_preempt(struct sn_group *group)
{
	struct sn_runlist *runlist = &group->object->gpu->runlist;

	if (runlist->resident == group)
		runlist->turn_end = runlist->at;
}

void sn_runlist_remove(struct sn_group *group)
{
	struct sn_runlist *runlist = &group->object->gpu->runlist;

	sn_runlist_advance(group->object->gpu);
	if (runlist->resident == group)
		leave(runlist);
	list_del(&group->in_runlist);
}
