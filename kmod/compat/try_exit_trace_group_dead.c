// SPDX-License-Identifier: GPL-2.0
/* The tracepoint says whether the whole process ends (6.16). */
#include <linux/mm.h>
#include <trace/events/sched.h>

void gs_try(struct task_struct *task);
void gs_try(struct task_struct *task)
{
	trace_sched_process_exit(task, true);
}
