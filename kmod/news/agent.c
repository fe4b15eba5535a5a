// SPDX-License-Identifier: GPL-2.0
/*
 * The registration of the agent. Every call that might be refused reads it, so reading takes no
 * lock: the struct pid is only compared, and is not reused while it is registered.
 */
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "news/agent.h"
#include "news/announce.h"
#include "news/lock.h"

#define GS_ANCESTORS_MAX 16 /* between the agent and a process that acts for it */

struct pid *gs_agent; /* It is written under gs_lock. */

static void gs_agent_set(struct pid *pid)
{
	struct pid *old;

	mutex_lock(&gs_lock);
	old = gs_agent;
	WRITE_ONCE(gs_agent, pid);
	mutex_unlock(&gs_lock);
	put_pid(old);
	gs_announce(GS_NEWS_AGENT);
}

/**
 * gs_agent_register() - Make the calling process the agent.
 */
void gs_agent_register(void)
{
	gs_agent_set(get_pid(task_tgid(current)));
}

/**
 * gs_agent_forget() - Let there be no agent.
 */
void gs_agent_forget(void)
{
	gs_agent_set(NULL);
}

/**
 * gs_agent_is_above_current() - Look for the agent among the caller and its ancestors.
 *
 * Return: What gs_agent_includes_current() returns, which calls this when there is an agent.
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
	for (depth = 0; depth < GS_ANCESTORS_MAX && !is_found && task->pid > 1 && pid_alive(task);
	     depth++) {
		is_found = task_tgid(task) == agent;
		task = rcu_dereference(task->real_parent);
	}
	rcu_read_unlock();
	return is_found;
}

/**
 * gs_agent_pid() - Name the agent.
 *
 * Return: Its pid as the caller's pid namespace knows it, or 0 if there is none.
 */
pid_t gs_agent_pid(void)
{
	pid_t pid;

	mutex_lock(&gs_lock);
	pid = pid_vnr(gs_agent);
	mutex_unlock(&gs_lock);
	return pid;
}
