/* SPDX-License-Identifier: GPL-2.0 */
/* The parts of /sys/kernel/gpushare/; ABI/sysfs-kernel-gpushare says what each attribute is. */
#ifndef GPUSHARE_SYSFS_H
#define GPUSHARE_SYSFS_H

#include <linux/atomic.h>
#include <linux/kobject.h>

#include "uapi/gpushare.h"

struct gs_tenant;

/* sysfs_root.c */
int gs_sysfs_init(void);
void gs_sysfs_exit(void);
void gs_sysfs_notify(const char *attribute);
void gs_sysfs_changed(void);
void gs_sysfs_set_policy(const char *name);
void gs_kobject_born(void);
void gs_kobject_died(void);

/* sysfs_tenant.c */
extern const struct kobj_type gs_tenant_ktype;

/* sysfs_procs.c */
extern struct bin_attribute gs_tenant_procs;

/* sysfs_gpu.c */
int gs_sysfs_gpus_init(struct kobject *root);
void gs_sysfs_gpus_exit(void);
int gs_sysfs_set_gpu(const struct gpushare_gpu *gpu);
void gs_sysfs_forget_gpus(void);

#endif /* GPUSHARE_SYSFS_H */
