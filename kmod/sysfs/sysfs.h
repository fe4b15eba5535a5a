/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of /sys/kernel/gpushare/. ABI/sysfs-kernel-gpushare says what each attribute is. main.c
 * makes and removes the tree, dev/chardev.c fills in what the agent publishes, and user space reads
 * and writes the attributes.
 */
#ifndef GPUSHARE_SYSFS_H
#define GPUSHARE_SYSFS_H

#include <linux/atomic.h>
#include <linux/kobject.h>

#include "uapi/gpushare.h"

struct gs_tenant;

/* root.c */
int gs_sysfs_init(void);
void gs_sysfs_exit(void);
void gs_sysfs_set_policy(const char *name);
void gs_kobject_born(void);
void gs_kobject_died(void);
size_t gs_line_length(const char *buf, size_t count);

/* tenants.c */
int gs_sysfs_tenants_init(struct kobject *root);
void gs_sysfs_tenants_exit(void);
int gs_tenant_create(const char *path, size_t len);
int gs_tenant_remove(const char *path, size_t len);
int gs_tenant_change_below(struct gs_tenant *above, const char *name, size_t len, bool is_made);

/* tenant.c */
extern const struct kobj_type gs_tenant_ktype;
bool gs_tenant_has_file(const char *name);

/* procs.c */
extern struct bin_attribute gs_tenant_procs;

/* gpu.c */
int gs_sysfs_gpus_init(struct kobject *root);
void gs_sysfs_gpus_exit(void);
int gs_sysfs_set_gpu(const struct gpushare_gpu *gpu);
void gs_sysfs_forget_gpus(void);

#endif /* GPUSHARE_SYSFS_H */
