// SPDX-License-Identifier: GPL-2.0
#include "members/current.h"
#include "members/fork.h"
#include "members/marks.h"

/**
 * gs_process_add() - Remember a process.
 * @process: A record from gs_process_new(), which this takes over.
 * @task: Any of its threads.
 *
 * It belongs to the tenant that it inherits, otherwise to the one that a rule gives to it.
 *
 * Return: The record of the process, which is another one if there was one by now.
 */
struct gs_process *gs_process_add(struct gs_process *process, struct task_struct *task)
{
	struct gs_tenant *tenant = gs_inherited_tenant(task);
	struct gs_process *known;

	lockdep_assert_held(&gs_lock);
	process->is_attached = tenant;
	process->tenant = tenant ?: gs_tenant_match(task);
	raw_spin_lock(&gs_processes_lock);
	known = gs_process_find_rcu(process->id.pid);
	if (!known)
		gs_process_insert(process);
	raw_spin_unlock(&gs_processes_lock);
	if (known) {
		gs_process_discard(process);
		return known;
	}
	gs_process_link(process);
	return process;
}

/* The record of a process with its marks handled, or NULL if it is not known. */
static struct gs_process *gs_process_find(const struct pid *pid)
{
	struct gs_process *process = gs_process_find_rcu(pid);

	lockdep_assert_held(&gs_lock);
	if (!process)
		return NULL;
	gs_processes_link_forked();
	gs_process_handle_marks(process);
	return gs_process_find_rcu(pid);
}

/**
 * gs_process_of_current() - Find the calling process, or make it if it is new.
 *
 * Return: The process with one more reference, or NULL if there is no memory. gs_lock is let go of
 * meanwhile if it is new.
 */
struct gs_process *gs_process_of_current(void)
{
	struct gs_process *process, *made;

	process = gs_process_find(task_tgid(current));
	if (!process) {
		mutex_unlock(&gs_lock);
		made = gs_process_new(current);
		mutex_lock(&gs_lock);
		process = made ? gs_process_add(made, current) : NULL;
	}
	if (process)
		refcount_inc(&process->refs);
	return process;
}
