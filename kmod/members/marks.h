/* SPDX-License-Identifier: GPL-2.0 */
/* What processes do that tracepoints tell of. */
#ifndef GPUSHARE_MARKS_H
#define GPUSHARE_MARKS_H

#include "members/process.h"

/* These need gs_lock. */
void gs_process_lost_client(struct gs_process *process);
void gs_process_handle_marks(struct gs_process *process);

/* These take it themselves. */
void gs_processes_tidy(void);
void gs_processes_exit(void);

/* hook/exits.c calls this from tracepoints. It returns true if gs_processes_tidy() is needed. */
bool gs_process_mark(struct task_struct *task, int mark);

#endif /* GPUSHARE_MARKS_H */
