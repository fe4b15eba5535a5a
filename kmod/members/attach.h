/* SPDX-License-Identifier: GPL-2.0 */
/* Processes that are put into a tenant by name. */
#ifndef GPUSHARE_ATTACH_H
#define GPUSHARE_ATTACH_H

#include <linux/types.h>

struct file;
struct gs_tenant;

int gs_process_attach(const struct file *file, pid_t pid, struct gs_tenant *tenant);

#endif /* GPUSHARE_ATTACH_H */
