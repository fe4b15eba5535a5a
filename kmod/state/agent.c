// SPDX-License-Identifier: GPL-2.0
/*
 * The registration of the agent. Read on every call that might be refused, so without a lock: the
 * struct pid is compared, never dereferenced, and is not reused while it is registered.
 */
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "state/agent.h"
#include "state/state.h"
#include "sysfs/sysfs.h"

#define GS_ANCESTORS_MAX 16 /* between a process that acts for the agent and the agent */

struct pid *gs_agent; /* written under gs_lock */

static void gs_agent_set(struct pid *pid)
{
	struct pid *old;

	mutex_lock(&gs_lock);
	old = gs_agent;
	WRITE_ONCE(gs_agent, pid);
	mutex_unlock(&gs_lock);
	put_pid(old);
	gs_sysfs_notify("agent");
}

/**
 * gs_agent_register() - the calling process is the agent
 */
void gs_agent_register(void)
{
	gs_agent_set(get_pid(task_tgid(current)));
}

/**
 * gs_agent_forget() - there is no agent
 */
void gs_agent_forget(void)
{
	gs_agent_set(NULL);
}

/**
 * gs_agent_is_above_current() - the long answer to gs_agent_includes_current()
 *
 * Return: see there.
 */
bool gs_agent_is_above_current(void)
{
	const struct pid *agent = READ_ONCE(gs_agent);
	struct task_struct *task = current;
	bool is_found = false;
	unsigned int depth;

	if (!agent)
		return false;
	rcu_read_lock();
	for (depth = 0; depth < GS_ANCESTORS_MAX && !is_found && task->pid > 1; depth++) {
		is_found = task_tgid(task) == agent;
		task = rcu_dereference(task->real_parent);
	}
	rcu_read_unlock();
	return is_found;
}

/**
 * gs_agent_pid() - its pid
 *
 * Return: as the caller's pid namespace knows it, 0 for none.
 */
pid_t gs_agent_pid(void)
{
	pid_t pid;

	mutex_lock(&gs_lock);
	pid = pid_vnr(gs_agent);
	mutex_unlock(&gs_lock);
	return pid;
}
