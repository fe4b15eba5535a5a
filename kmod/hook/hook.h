/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hook into the driver, and the scheduler's news of processes that end. main.c attaches both,
 * and sysfs/root.c shows and drains the hook.
 */
#ifndef GPUSHARE_HOOK_H
#define GPUSHARE_HOOK_H

#include <linux/types.h>

/* hook.c */
int gs_hook_init(void);
void gs_hook_exit(void);
void gs_hook_drain(bool is_draining);
bool gs_hook_is_draining(void);
int gs_hook_describe(char *text);

/* exits.c */
int gs_exits_init(void);
void gs_exits_exit(void);

#endif /* GPUSHARE_HOOK_H */
