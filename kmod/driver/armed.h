/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether the kernel's probes work. Root can disarm all of them by a file of debugfs, and nobody is
 * told. So there is a probe at a function of our own, which is called to find out. hook/hook.c
 * calls all of this with its lock.
 */
#ifndef GPUSHARE_ARMED_H
#define GPUSHARE_ARMED_H

#include <linux/types.h>

int gs_armed_attach(void);
void gs_armed_detach(void);
bool gs_armed_is_so(void);

#endif /* GPUSHARE_ARMED_H */
