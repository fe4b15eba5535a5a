/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calling process. A process is found, or made, when it first makes a call of the driver that
 * the filter looks at, or when it is attached to a tenant.
 */
#ifndef GPUSHARE_CURRENT_H
#define GPUSHARE_CURRENT_H

#include "members/process.h"

/* gs_lock. The first returns the caller's process with one more reference, or NULL. */
struct gs_process *gs_process_of_current(void);
struct gs_process *gs_process_add(struct gs_process *process, struct task_struct *task);

/**
 * gs_process_is_current() - Is this the caller's process, with nothing to be done about it first?
 * @process: Any process, which is valid under RCU or by a lock.
 *
 * Return: True if gs_process_of_current() would find it.
 */
static inline bool gs_process_is_current(const struct gs_process *process)
{
	return process->id.pid == task_tgid(current) && !READ_ONCE(process->is_gone) &&
	       !READ_ONCE(process->marks);
}

#endif /* GPUSHARE_CURRENT_H */
