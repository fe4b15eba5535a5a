// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that exit or exec. The scheduler's tracepoints run in every exiting thread of the
 * machine, and may not sleep. They make one lookup, and for the few processes that are known they
 * set a mark and queue a work item.
 */
#include <linux/binfmts.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "hook/hook.h"
#include "state/process.h"

static struct tracepoint *gs_exit_point, *gs_exec_point;

static void gs_exits_work(struct work_struct *work)
{
	gs_processes_end_marked();
}

static DECLARE_WORK(gs_exits, gs_exits_work);

static void gs_mark(struct task_struct *task, int ending)
{
	struct gs_process *process;

	rcu_read_lock();
	process = gs_process_find_rcu(task_tgid(task));
	if (process) {
		set_bit(ending, &process->ending);
		schedule_work(&gs_exits);
	}
	rcu_read_unlock();
}

/* `live` has been decremented before. If the two last threads race, both set the mark. */
static void gs_on_exit(void *data, struct task_struct *task)
{
	if (!atomic_read(&task->signal->live))
		gs_mark(task, GS_ENDING_EXIT);
}

static void gs_on_exec(void *data, struct task_struct *task, pid_t old_pid,
		       struct linux_binprm *binprm)
{
	gs_mark(task, GS_ENDING_EXEC);
}

/* The tracepoints are not exported by name, but all of the kernel's can be walked. */
static void gs_take_point(struct tracepoint *point, void *data)
{
	if (strcmp(point->name, "sched_process_exit") == 0)
		gs_exit_point = point;
	else if (strcmp(point->name, "sched_process_exec") == 0)
		gs_exec_point = point;
}

/**
 * gs_exits_init() - Watch for the ends of processes.
 *
 * Return: 0, -ENOENT on a kernel without these tracepoints, or another negative errno.
 */
int gs_exits_init(void)
{
	int err;

	for_each_kernel_tracepoint(gs_take_point, NULL);
	if (!gs_exit_point || !gs_exec_point)
		return -ENOENT;
	err = tracepoint_probe_register(gs_exit_point, gs_on_exit, NULL);
	if (err)
		return err;
	err = tracepoint_probe_register(gs_exec_point, gs_on_exec, NULL);
	if (err) {
		tracepoint_probe_unregister(gs_exit_point, gs_on_exit, NULL);
		tracepoint_synchronize_unregister();
	}
	return err;
}

/**
 * gs_exits_exit() - Stop watching; nothing is under way when it returns.
 */
void gs_exits_exit(void)
{
	tracepoint_probe_unregister(gs_exec_point, gs_on_exec, NULL);
	tracepoint_probe_unregister(gs_exit_point, gs_on_exit, NULL);
	tracepoint_synchronize_unregister();
	cancel_work_sync(&gs_exits);
}
