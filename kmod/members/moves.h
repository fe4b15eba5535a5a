/* SPDX-License-Identifier: GPL-2.0 */
/* Processes that change their tenant. All functions need gs_lock. */
#ifndef GPUSHARE_MOVES_H
#define GPUSHARE_MOVES_H

#include "members/process.h"

void gs_process_move(struct gs_process *process, struct gs_tenant *tenant, bool is_attached);
void gs_processes_leave(struct gs_tenant *tenant);

#endif /* GPUSHARE_MOVES_H */
