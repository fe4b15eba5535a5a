/* SPDX-License-Identifier: GPL-2.0 */
/* Processes that are forked: which tenant a new process inherits. */
#ifndef GPUSHARE_FORK_H
#define GPUSHARE_FORK_H

#include "members/process.h"

bool gs_processes_link_forked(void);                             /* gs_lock */
struct gs_tenant *gs_inherited_tenant(struct task_struct *task); /* gs_lock */

/* hook/exits.c calls this from a tracepoint. It returns true if gs_processes_tidy() is needed. */
bool gs_process_forked(struct task_struct *parent, struct task_struct *child);

#endif /* GPUSHARE_FORK_H */
