// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that fork, exec, exit, or change their cgroup. The kernel's tracepoints run in every
 * such process of the machine, and may not sleep. They make one lookup, and for the few processes
 * that are known they make a record or set a mark, and queue a work item.
 */
#include <linux/binfmts.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "compat/version.h"
#include "hook/hook.h"
#include "members/fork.h"
#include "members/marks.h"

static void gs_exits_work(struct work_struct *work)
{
	gs_processes_tidy();
}

static DECLARE_WORK(gs_exits, gs_exits_work);

static void gs_mark(struct task_struct *task, int mark)
{
	if (gs_process_mark(task, mark))
		schedule_work(&gs_exits);
}

/* `live` has been decremented before. If the two last threads race, both set the mark. */
GS_ON_EXIT(gs_on_exit)
{
	if (!atomic_read(&task->signal->live))
		gs_mark(task, GS_MARK_EXIT);
}

static void gs_on_exec(void *data, struct task_struct *task, pid_t old_pid,
		       struct linux_binprm *binprm)
{
	gs_mark(task, GS_MARK_EXEC);
}

static void gs_on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	if (gs_process_forked(parent, child))
		schedule_work(&gs_exits);
}

static void gs_on_cgroup(void *data, struct cgroup *cgroup, const char *path,
			 struct task_struct *task, bool is_group)
{
	gs_mark(task, GS_MARK_CGROUP);
}

/* The tracepoints are not exported by name, but all of the kernel's can be walked. */
static struct gs_point {
	const char *name;
	void *probe;
	struct tracepoint *point;
} gs_points[] = {
	{ "sched_process_fork", gs_on_fork },
	{ "sched_process_exec", gs_on_exec },
	{ "sched_process_exit", gs_on_exit },
	{ "cgroup_attach_task", gs_on_cgroup },
};

static void gs_take_point(struct tracepoint *point, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gs_points); i++) {
		if (strcmp(point->name, gs_points[i].name) == 0)
			gs_points[i].point = point;
	}
}

/* Leaves the first @count points; nothing is under way on them when it returns. */
static void gs_leave_points(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(gs_points[count].point, gs_points[count].probe, NULL);
	tracepoint_synchronize_unregister();
}

/**
 * gs_exits_init() - Watch processes begin and end.
 *
 * Return: 0, -ENOENT on a kernel without these tracepoints, or another negative errno.
 */
int gs_exits_init(void)
{
	unsigned int i;
	int err;

	for_each_kernel_tracepoint(gs_take_point, NULL);
	for (i = 0; i < ARRAY_SIZE(gs_points); i++) {
		err = gs_points[i].point ? tracepoint_probe_register(gs_points[i].point,
								     gs_points[i].probe, NULL) :
					   -ENOENT;
		if (err) {
			gs_leave_points(i);
			return err;
		}
	}
	return 0;
}

/**
 * gs_exits_exit() - Stop watching; nothing is under way when it returns.
 */
void gs_exits_exit(void)
{
	gs_leave_points(ARRAY_SIZE(gs_points));
	cancel_work_sync(&gs_exits);
}
