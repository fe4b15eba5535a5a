// SPDX-License-Identifier: GPL-2.0
/*
 * The directory tenants/: tenants are made and removed here, by writes to `create` and `remove`.
 * gs_tree_lock makes these take turns. It is taken before gs_lock, and no attribute of a tenant
 * takes it, because kobject_del() waits for those.
 */
#include <linux/slab.h>

#include "members/names.h"
#include "members/marks.h"
#include "members/moves.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"

#define GS_DEFAULT_TENANT "default"
#define GS_TENANTS_MAX 1024 /* the agent has room for as many */

static DEFINE_MUTEX(gs_tree_lock);
static struct kobject *gs_tenants_dir;

static struct gs_tenant *gs_tenant_new(void)
{
	struct gs_tenant *tenant = kzalloc(sizeof(*tenant), GFP_KERNEL);

	if (tenant)
		gs_tenant_init(tenant);
	return tenant;
}

/* The caller holds gs_tree_lock; @name is valid and terminated. */
static int gs_tenant_add(const char *name)
{
	struct gs_tenant *tenant = gs_tenant_new();
	int err;

	if (!tenant)
		return -ENOMEM;
	gs_kobject_born();
	err = kobject_init_and_add(&tenant->kobj, &gs_tenant_ktype, gs_tenants_dir, "%s", name);
	if (err) {
		kobject_put(&tenant->kobj);
		return err;
	}
	mutex_lock(&gs_lock);
	gs_tenant_link(tenant);
	mutex_unlock(&gs_lock);
	return 0;
}

/* Its processes go into the default tenant; those of the default tenant itself are forgotten. */
static void gs_tenant_delete(struct gs_tenant *tenant)
{
	mutex_lock(&gs_lock);
	gs_tenant_unlink(tenant);
	gs_processes_leave(tenant);
	gs_tenant_changed(tenant, GPUSHARE_SETTING_REMOVED);
	mutex_unlock(&gs_lock);
	if (tenant == gs_tenant_default)
		gs_processes_exit();
	kobject_del(&tenant->kobj);
	kobject_put(&tenant->kobj);
}

/* Copies a name that was written, and terminates it. Returns 0, or -EINVAL if it is not allowed. */
static int gs_name_copy(char *name, const char *text, size_t len)
{
	if (!gs_name_is_valid(text, len))
		return -EINVAL;
	memcpy(name, text, len);
	name[len] = '\0';
	return 0;
}

/**
 * gs_tenant_create() - Make a tenant with default settings.
 * @name: The name, not terminated.
 * @len: Its length in bytes.
 *
 * Return: 0, -EINVAL for a name that is not allowed, -EEXIST, -ENOSPC if there are GS_TENANTS_MAX
 * already, or -ENOMEM.
 */
int gs_tenant_create(const char *name, size_t len)
{
	char copy[GS_NAME_MAX + 1];
	int err = gs_name_copy(copy, name, len);
	struct gs_tenant *existing;
	unsigned int count;

	if (err)
		return err;
	mutex_lock(&gs_tree_lock);
	mutex_lock(&gs_lock);
	existing = gs_tenant_find(copy);
	count = gs_tenants_count;
	mutex_unlock(&gs_lock);
	if (existing)
		err = -EEXIST;
	else if (count >= GS_TENANTS_MAX)
		err = -ENOSPC;
	else
		err = gs_tenant_add(copy);
	mutex_unlock(&gs_tree_lock);
	return err;
}

/**
 * gs_tenant_remove() - Remove a tenant; its processes go into the default tenant.
 * @name: The name, not terminated.
 * @len: Its length in bytes.
 *
 * Return: 0, -EINVAL for a name that is not allowed, -ENOENT, or -EBUSY for the default tenant.
 */
int gs_tenant_remove(const char *name, size_t len)
{
	char copy[GS_NAME_MAX + 1];
	int err = gs_name_copy(copy, name, len);
	struct gs_tenant *tenant;

	if (err)
		return err;
	mutex_lock(&gs_tree_lock);
	mutex_lock(&gs_lock);
	tenant = gs_tenant_find(copy);
	mutex_unlock(&gs_lock);
	if (!tenant)
		err = -ENOENT;
	else if (tenant == gs_tenant_default)
		err = -EBUSY;
	else
		gs_tenant_delete(tenant);
	mutex_unlock(&gs_tree_lock);
	return err;
}

/**
 * gs_sysfs_tenants_init() - Make tenants/ with the default tenant.
 * @root: The directory /sys/kernel/gpushare.
 *
 * Return: 0 or a negative errno.
 */
int gs_sysfs_tenants_init(struct kobject *root)
{
	int err;

	gs_tenants_dir = kobject_create_and_add("tenants", root);
	if (!gs_tenants_dir)
		return -ENOMEM;
	mutex_lock(&gs_tree_lock);
	err = gs_tenant_add(GS_DEFAULT_TENANT);
	mutex_unlock(&gs_tree_lock);
	if (err)
		kobject_put(gs_tenants_dir);
	return err;
}

/**
 * gs_sysfs_tenants_exit() - Remove all tenants, the default one last, with every process in it.
 *
 * Nothing can make a tenant or a process any more: the attribute `create` is gone, and so is the
 * hook into the driver.
 */
void gs_sysfs_tenants_exit(void)
{
	struct gs_tenant *tenant, *next;

	mutex_lock(&gs_tree_lock);
	list_for_each_entry_safe(tenant, next, &gs_tenants, node) {
		if (tenant != gs_tenant_default)
			gs_tenant_delete(tenant);
	}
	gs_tenant_delete(gs_tenant_default);
	mutex_unlock(&gs_tree_lock);
	kobject_put(gs_tenants_dir);
}
