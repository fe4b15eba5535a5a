/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The events that tell of clients and objects: when they are made, and again when an agent that has
 * just started asks for everything that is there.
 */
#ifndef GPUSHARE_REPORT_H
#define GPUSHARE_REPORT_H

#include "state/client.h"

void gs_report_client(const struct gs_process *process, u32 handle, s32 fd, u32 flags);
void gs_object_event(struct gpushare_event *event, u32 client, const struct gs_object *object);
void gs_replay(void); /* gs_lock */

#endif /* GPUSHARE_REPORT_H */
