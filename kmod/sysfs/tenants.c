// SPDX-License-Identifier: GPL-2.0
/*
 * The tree of tenants below tenants/: tenants are made and removed here, by writes to `create` and
 * `remove` of the root and of each tenant. gs_tree_lock makes these take turns. It is taken before
 * gs_lock. kobject_del() waits for writers of a tenant's own files, so those only try to take
 * gs_tree_lock, and begin again if they do not get it. A writer that has it may remove tenants
 * below its own, of whose files no other writer can then be waiting for it.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "members/fork.h"
#include "members/marks.h"
#include "members/moves.h"
#include "members/names.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"

#define GS_DEFAULT_TENANT "default"
#define GS_TENANTS_MAX 1024 /* the agent has room for as many */
#define GS_BELOW_MAX 128    /* that users may make below one at the top, to whom it was given */

static DEFINE_MUTEX(gs_tree_lock);
static struct kobject *gs_tenants_dir;

/* Counts @tenant below those above it. */
static void gs_tenant_count_below(struct gs_tenant *tenant, int more)
{
	lockdep_assert_held(&gs_tree_lock);
	if (!tenant->parent)
		return;
	tenant->parent->children += more;
	gs_tenant_top(tenant)->below += more;
}

/* @path is valid and terminated, and @parent, if not NULL, is the tenant above. */
static int gs_tenant_add(const char *path, struct gs_tenant *parent)
{
	struct gs_tenant *tenant = kzalloc(sizeof(*tenant), GFP_KERNEL);
	size_t above = gs_path_parent(path, strlen(path));
	int err;

	lockdep_assert_held(&gs_tree_lock);
	if (!tenant)
		return -ENOMEM;
	gs_tenant_init(tenant, path, parent);
	if (parent)
		tenant->owner = current_fsuid();
	gs_kobject_born();
	err = kobject_init_and_add(&tenant->kobj, &gs_tenant_ktype,
				   parent ? &parent->kobj : gs_tenants_dir, "%s",
				   path + (above ? above + 1 : 0));
	if (err) {
		kobject_put(&tenant->kobj);
		return err;
	}
	gs_tenant_count_below(tenant, 1);
	mutex_lock(&gs_lock);
	gs_tenant_link(tenant);
	mutex_unlock(&gs_lock);
	return 0;
}

/*
 * Lets a tenant not be found any more, so that no process can be attached to it. Returns false if
 * it must be empty for that and is not.
 */
static bool gs_tenant_withdraw(struct gs_tenant *tenant, bool must_be_empty)
{
	bool is_withdrawn;

	lockdep_assert_held(&gs_tree_lock);
	mutex_lock(&gs_lock);
	gs_processes_link_forked();
	is_withdrawn = !must_be_empty || list_empty(&tenant->processes);
	if (is_withdrawn)
		gs_tenant_unlink(tenant);
	mutex_unlock(&gs_lock);
	return is_withdrawn;
}

/*
 * Removes a tenant that is withdrawn. Its processes go into the default tenant; those of the
 * default tenant itself are forgotten.
 */
static void gs_tenant_delete(struct gs_tenant *tenant)
{
	lockdep_assert_held(&gs_tree_lock);
	mutex_lock(&gs_lock);
	gs_processes_leave(tenant);
	gs_tenant_changed(tenant, GPUSHARE_SETTING_REMOVED);
	mutex_unlock(&gs_lock);
	if (tenant == gs_tenant_default)
		gs_processes_exit();
	gs_tenant_count_below(tenant, -1);
	kobject_del(&tenant->kobj);
	kobject_put(&tenant->kobj);
}

/*
 * Writes the path of a name below a tenant, or below tenants/ if that is NULL. Returns 0, or
 * -EINVAL for a path that is not allowed.
 */
static int gs_path_copy(char *path, const struct gs_tenant *above, const char *name, size_t len)
{
	size_t before = above ? strlen(above->name) + 1 : 0;

	if (!len || before + len > GS_NAME_MAX)
		return -EINVAL;
	if (above) {
		memcpy(path, above->name, before - 1);
		path[before - 1] = '/';
	}
	memcpy(path + before, name, len);
	path[before + len] = '\0';
	return gs_path_is_valid(path, before + len) ? 0 : -EINVAL;
}

/* Finds a tenant by the first @len bytes of a path, which is changed meanwhile. */
static struct gs_tenant *gs_tenant_at(char *path, size_t len)
{
	char end = path[len];
	struct gs_tenant *tenant;

	lockdep_assert_held(&gs_tree_lock); /* It cannot go meanwhile. */
	path[len] = '\0';
	mutex_lock(&gs_lock);
	tenant = gs_tenant_find(path);
	mutex_unlock(&gs_lock);
	path[len] = end;
	return tenant;
}

static int gs_tenant_create_locked(char *path)
{
	size_t len = strlen(path), above = gs_path_parent(path, len);
	struct gs_tenant *parent = above ? gs_tenant_at(path, above) : NULL;

	if (above && !parent)
		return -ENOENT;
	if (gs_tenant_at(path, len) || (parent && gs_tenant_has_file(path + above + 1)))
		return -EEXIST;
	if (READ_ONCE(gs_tenants_count) >= GS_TENANTS_MAX)
		return -ENOSPC;
	if (parent && gs_tenant_top(parent)->below >= GS_BELOW_MAX && !capable(CAP_SYS_ADMIN))
		return -ENOSPC;
	return gs_tenant_add(path, parent);
}

/* One below another is removed only when it is empty, as a cgroup is. */
static int gs_tenant_remove_locked(char *path)
{
	struct gs_tenant *tenant = gs_tenant_at(path, strlen(path));

	if (!tenant)
		return -ENOENT;
	if (tenant == gs_tenant_default || tenant->children ||
	    !gs_tenant_withdraw(tenant, tenant->parent))
		return -EBUSY;
	gs_tenant_delete(tenant);
	return 0;
}

static int gs_tree_change(const char *path, size_t len, int (*change)(char *path))
{
	char copy[GS_NAME_MAX + 1];
	int err = gs_path_copy(copy, NULL, path, len);

	if (err)
		return err;
	mutex_lock(&gs_tree_lock);
	err = change(copy);
	mutex_unlock(&gs_tree_lock);
	return err;
}

/**
 * gs_tenant_create() - Make a tenant with default settings.
 * @path: The path from tenants/ on, not terminated.
 * @len: Its length in bytes.
 *
 * Return: 0, -EINVAL for a path that is not allowed, -ENOENT if there is no tenant above, -EEXIST,
 * also if the name is that of a file, -ENOSPC if there are GS_TENANTS_MAX already, or -ENOMEM.
 */
int gs_tenant_create(const char *path, size_t len)
{
	return gs_tree_change(path, len, gs_tenant_create_locked);
}

/**
 * gs_tenant_remove() - Remove a tenant. The processes of one at the top go into the default tenant.
 * @path: The path from tenants/ on, not terminated.
 * @len: Its length in bytes.
 *
 * Return: 0, -EINVAL for a path that is not allowed, -ENOENT, or -EBUSY for the default tenant, for
 * one with others below, and for one below another that has processes.
 */
int gs_tenant_remove(const char *path, size_t len)
{
	return gs_tree_change(path, len, gs_tenant_remove_locked);
}

/**
 * gs_tenant_change_below() - Make or remove a tenant below another, as a write to a file of that.
 * @above: The tenant above.
 * @name: A name, or a path from there on, not terminated.
 * @len: Its length in bytes.
 * @is_made: True to make it.
 *
 * Return: As of gs_tenant_create() or gs_tenant_remove(); -ENODEV if @above is being removed, and
 * what lets the system call begin again if another program changes the tree.
 */
int gs_tenant_change_below(struct gs_tenant *above, const char *name, size_t len, bool is_made)
{
	char path[GS_NAME_MAX + 1];
	int err = gs_path_copy(path, above, name, len);

	if (err)
		return err;
	if (!mutex_trylock(&gs_tree_lock)) {
		usleep_range(500, 2000); /* so that nobody spins; see the head of this file */
		return restart_syscall();
	}
	if (!above->is_linked)
		err = -ENODEV;
	else
		err = is_made ? gs_tenant_create_locked(path) : gs_tenant_remove_locked(path);
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
	err = gs_tenant_add(GS_DEFAULT_TENANT, NULL);
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
	/* A tenant is newer than the one above it. */
	list_for_each_entry_safe_reverse(tenant, next, &gs_tenants, node) {
		if (tenant == gs_tenant_default)
			continue;
		gs_tenant_withdraw(tenant, false);
		gs_tenant_delete(tenant);
	}
	gs_tenant_withdraw(gs_tenant_default, false);
	gs_tenant_delete(gs_tenant_default);
	mutex_unlock(&gs_tree_lock);
	kobject_put(gs_tenants_dir);
}
