// SPDX-License-Identifier: GPL-2.0
/*
 * What processes do that tracepoints tell of: exec, exit, another cgroup. A tracepoint may not take
 * gs_lock, so it sets a mark, which is handled soon after by a work item, or at once by a call of
 * the process itself.
 */
#include <linux/sched/task.h>

#include "members/fork.h"
#include "members/marks.h"
#include "members/moves.h"

static LLIST_HEAD(gs_processes_marked);

/**
 * gs_process_mark() - Note what a process has done, if it is known.
 * @task: Any of its threads.
 * @mark: One of GS_MARK_*.
 *
 * Return: True if gs_processes_tidy() is to be called soon.
 */
bool gs_process_mark(struct task_struct *task, int mark)
{
	struct gs_process *process;

	rcu_read_lock();
	process = gs_process_find_rcu(task_tgid(task));
	if (process) {
		set_bit(mark, &process->marks);
		if (!atomic_xchg(&process->is_marked, 1)) {
			if (refcount_inc_not_zero(&process->refs))
				llist_add(&process->marked, &gs_processes_marked);
		}
	}
	rcu_read_unlock();
	return process;
}

/**
 * gs_process_lost_client() - Report the end of a process if this was the last client it had left.
 * @process: The process of a client that is gone, of which the caller holds a reference.
 *
 * After exec a process stays in the tenant that it was attached to; otherwise the rules look at
 * what it has become.
 */
void gs_process_lost_client(struct gs_process *process)
{
	enum gs_closing closing = process->closing;

	lockdep_assert_held(&gs_lock);
	if (!closing || !list_empty(&process->clients))
		return;
	process->closing = GS_CLOSING_NOT;
	gs_process_send_closed(process, closing == GS_CLOSING_EXEC);
	if (!process->is_gone && !process->is_attached && !test_bit(GS_MARK_EXIT, &process->marks))
		gs_process_drop(process);
}

static void gs_process_close(struct gs_process *process, enum gs_closing closing)
{
	process->closing = closing;
	gs_process_lost_client(process);
	if (closing == GS_CLOSING_EXIT && !process->is_gone)
		gs_process_drop(process);
}

static void gs_process_match_again(struct gs_process *process)
{
	struct task_struct *task;

	if (process->is_attached)
		return;
	task = get_pid_task(process->id.pid, PIDTYPE_TGID);
	if (!task)
		return;
	gs_process_move(process, gs_tenant_match(task), false);
	put_task_struct(task);
}

/**
 * gs_process_handle_marks() - Do what the marks of a process ask for.
 * @process: The process, of which the caller has a reference, or which is in the table.
 *
 * Its memory is not given back here, but when the driver has released its files. Until then it has
 * not ended: another process may have them open, and its work goes on.
 */
void gs_process_handle_marks(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (process->is_gone)
		return;
	refcount_inc(&process->refs);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_EXEC, &process->marks))
		gs_process_close(process, GS_CLOSING_EXEC);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_CGROUP, &process->marks))
		gs_process_match_again(process);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_EXIT, &process->marks))
		gs_process_close(process, GS_CLOSING_EXIT);
	gs_process_put(process);
}

/**
 * gs_processes_tidy() - Handle every process that was forked or marked in a tracepoint.
 */
void gs_processes_tidy(void)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	gs_processes_link_forked();
	mutex_unlock(&gs_lock);
	llist_for_each_entry_safe(process, next, llist_del_all(&gs_processes_marked), marked) {
		mutex_lock(&gs_lock);
		gs_processes_link_forked();         /* it may be one of them */
		atomic_set(&process->is_marked, 0); /* a mark from here on is for another time */
		smp_mb__after_atomic();
		gs_process_handle_marks(process);
		gs_process_put(process);
		mutex_unlock(&gs_lock);
		cond_resched();
	}
}

/**
 * gs_processes_exit() - Forget all processes, when no client is left and there are no calls.
 */
void gs_processes_exit(void)
{
	struct gs_process *process, *next;

	gs_processes_tidy();
	mutex_lock(&gs_lock);
	list_for_each_entry_safe(process, next, &gs_processes, node) {
		if (!process->is_gone)
			gs_process_drop(process);
	}
	mutex_unlock(&gs_lock);
	gs_processes_wait();
	WARN_ON(!list_empty(&gs_processes));
}
