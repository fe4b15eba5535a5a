// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that are forked. A child of a process that was attached to a tenant is a member from
 * its fork on: it comes into the table at once, in a tracepoint, and into the lists a little later.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "members/fork.h"

#define GS_ANCESTORS_MAX 64 /* a bound for the walk: no programs nest so deep */

static LIST_HEAD(gs_processes_forked); /* gs_process.pending, under gs_processes_lock */

/**
 * gs_processes_link_forked() - Put the processes that were forked into the lists.
 *
 * Return: False if there were none.
 */
bool gs_processes_link_forked(void)
{
	struct gs_process *process;
	bool is_any = false;

	lockdep_assert_held(&gs_lock);
	for (;;) {
		raw_spin_lock(&gs_processes_lock);
		process =
			list_first_entry_or_null(&gs_processes_forked, struct gs_process, pending);
		if (process)
			list_del_init(&process->pending);
		raw_spin_unlock(&gs_processes_lock);
		if (!process)
			return is_any;
		gs_process_link(process);
		is_any = true;
	}
}

/**
 * gs_inherited_tenant() - Find the tenant of the nearest ancestor that was attached by name.
 * @task: A thread of the process, or of a process that is to be one.
 *
 * This is for processes that were forked before the module came, or when there was no memory.
 *
 * Return: The tenant, or NULL if there is none.
 */
struct gs_tenant *gs_inherited_tenant(struct task_struct *task)
{
	struct gs_tenant *tenant = NULL;
	unsigned int depth;

	rcu_read_lock();
	for (depth = 0; depth < GS_ANCESTORS_MAX && !tenant && pid_alive(task); depth++) {
		struct gs_process *process = gs_process_find_rcu(task_tgid(task));

		if (process && process->is_attached)
			tenant = process->tenant;
		if (task->pid <= 1)
			break;
		task = rcu_dereference(task->real_parent);
	}
	rcu_read_unlock();
	return tenant;
}

/**
 * gs_process_forked() - Let a new process inherit the tenant that its parent was attached to.
 * @parent: The process that forks.
 * @child: The new process, which has not run yet.
 *
 * Others can name the child before this, and may have put it into a tenant by name. There it stays.
 *
 * A kernel with PREEMPT_RT has no memory to give in a tracepoint. There the child inherits when it
 * first uses the driver, if its ancestors still live.
 *
 * Return: True if gs_processes_tidy() is to be called soon.
 */
bool gs_process_forked(struct task_struct *parent, struct task_struct *child)
{
	struct gs_process *process, *heir = NULL;
	bool is_heir = false;

	if (child->tgid == parent->tgid || IS_ENABLED(CONFIG_PREEMPT_RT))
		return false;
	rcu_read_lock();
	process = gs_process_find_rcu(task_tgid(parent));
	if (process && READ_ONCE(process->is_attached))
		heir = gs_process_alloc(GFP_ATOMIC | __GFP_NOWARN);
	if (!heir)
		goto unlock;
	heir->is_attached = true;
	heir->id.pid = get_pid(task_tgid(child));
	heir->id.start_ticks = gs_start_ticks(child);
	raw_spin_lock(&gs_processes_lock);
	is_heir = READ_ONCE(process->is_attached) && !process->is_gone &&
		  !gs_process_find_rcu(heir->id.pid);
	if (is_heir) {
		heir->tenant = process->tenant;
		gs_process_insert(heir);
		list_add_tail(&heir->pending, &gs_processes_forked);
	}
	raw_spin_unlock(&gs_processes_lock);
	if (!is_heir)
		gs_process_discard(heir);
unlock:
	rcu_read_unlock();
	return is_heir;
}
