// SPDX-License-Identifier: GPL-2.0
/*
 * The tenants: made and removed by writes to sysfs, found by name, chosen for a process by its
 * rules. Creation and removal are serialized by gs_tree_lock, which is taken before gs_lock and
 * never by an attribute of a tenant: kobject_del() waits for those.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/stringhash.h>
#include <linux/user_namespace.h>

#include "compat/version.h"
#include "state/names.h"
#include "state/state.h"
#include "state/stream.h"
#include "sysfs/sysfs.h"

static DEFINE_MUTEX(gs_tree_lock);
static DEFINE_HASHTABLE(gs_tenants_by_name, 10);
static LIST_HEAD(gs_tenants);
static unsigned int gs_tenants_count;
static struct gs_tenant *gs_default;
static struct kobject *gs_tenants_dir;

static u32 gs_name_hash(const char *name)
{
	return full_name_hash(NULL, name, strlen(name));
}

/**
 * gs_tenant_find() - the tenant of a name
 * @name: terminated
 *
 * Return: the tenant, valid while gs_lock is held, or NULL.
 */
struct gs_tenant *gs_tenant_find(const char *name)
{
	struct gs_tenant *tenant;

	lockdep_assert_held(&gs_lock);
	hash_for_each_possible(gs_tenants_by_name, tenant, hash, gs_name_hash(name)) {
		if (strcmp(kobject_name(&tenant->kobj), name) == 0)
			return tenant;
	}
	return NULL;
}

/**
 * gs_tenant_default() - the tenant of processes that no rule names
 *
 * Return: the tenant; it is there as long as the module.
 */
struct gs_tenant *gs_tenant_default(void)
{
	return gs_default;
}

/* The path of @task in the v2 hierarchy; "" when it is unknown or does not fit. */
static void gs_cgroup_path(struct task_struct *task, char *path, size_t bytes)
{
	int len;

	rcu_read_lock();
	len = cgroup_path(task_dfl_cgroup(task), path, bytes);
	rcu_read_unlock();
	if (len < 0 || (size_t)len >= bytes)
		path[0] = '\0';
}

/**
 * gs_tenant_match() - the tenant that rules give to a process
 * @task: any thread of it
 *
 * The first tenant whose match_cgroup matches; else the first whose match_uid does; else the
 * default. In the order in which the tenants were created.
 *
 * Return: the tenant, never NULL.
 */
struct gs_tenant *gs_tenant_match(struct task_struct *task)
{
	static char path[PATH_MAX]; /* under gs_lock */
	u32 uid = from_kuid(&init_user_ns, task_uid(task));
	struct gs_tenant *tenant, *of_uid = NULL;
	bool has_path = false;

	lockdep_assert_held(&gs_lock);
	list_for_each_entry(tenant, &gs_tenants, node) {
		if (tenant->match_cgroup[0]) {
			if (!has_path)
				gs_cgroup_path(task, path, sizeof(path));
			has_path = true;
			if (path[0] && gs_glob_matches(tenant->match_cgroup, path))
				return tenant;
		}
		if (!of_uid && tenant->has_match_uid && tenant->match_uid == uid)
			of_uid = tenant;
	}
	return of_uid ?: gs_default;
}

/**
 * gs_tenant_changed() - tell everyone who waits for a change of settings
 * @tenant: changed
 * @setting: what
 */
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	gs_event_init(&event, GPUSHARE_EVENT_SETTINGS_CHANGED, NULL);
	event.settings.setting = setting;
	strscpy(event.settings.tenant, kobject_name(&tenant->kobj), sizeof(event.settings.tenant));
	gs_event_send(&event);
	gs_sysfs_changed();
}

static void gs_tenant_link(struct gs_tenant *tenant)
{
	mutex_lock(&gs_lock);
	list_add_tail(&tenant->node, &gs_tenants);
	hash_add(gs_tenants_by_name, &tenant->hash, gs_name_hash(kobject_name(&tenant->kobj)));
	gs_tenants_count++;
	gs_tenant_changed(tenant, GPUSHARE_SETTING_CREATED);
	mutex_unlock(&gs_lock);
}

/* Its processes belong to the default tenant from now on; the default's own are nobody's. */
static void gs_tenant_unlink(struct gs_tenant *tenant)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	list_del(&tenant->node);
	hash_del(&tenant->hash);
	gs_tenants_count--;
	tenant->is_removed = true;
	if (tenant != gs_default) {
		list_for_each_entry_safe(process, next, &tenant->processes, tenant_node) {
			process->is_attached = false;
			gs_process_move(process, gs_default);
		}
	}
	gs_tenant_changed(tenant, GPUSHARE_SETTING_REMOVED);
	mutex_unlock(&gs_lock);
}

static struct gs_tenant *gs_tenant_new(void)
{
	struct gs_tenant *tenant = kzalloc(sizeof(*tenant), GFP_KERNEL);

	if (!tenant)
		return NULL;
	INIT_LIST_HEAD(&tenant->processes);
	gs_settings_init(&tenant->settings);
	tenant->share_permille = GPUSHARE_UNKNOWN;
	return tenant;
}

/* With gs_tree_lock held; @name is valid and terminated. */
static struct gs_tenant *gs_tenant_add(const char *name)
{
	struct gs_tenant *tenant = gs_tenant_new();
	int err;

	if (!tenant)
		return ERR_PTR(-ENOMEM);
	gs_kobject_born();
	err = kobject_init_and_add(&tenant->kobj, &gs_tenant_ktype, gs_tenants_dir, "%s", name);
	if (err) {
		kobject_put(&tenant->kobj);
		return ERR_PTR(err);
	}
	gs_tenant_link(tenant);
	return tenant;
}

/* Copies a name that was written, without its newline. */
static int gs_name_copy(char *name, const char *text, size_t len)
{
	if (!gs_name_is_valid(text, len))
		return -EINVAL;
	memcpy(name, text, len);
	name[len] = '\0';
	return 0;
}

/**
 * gs_tenant_create() - make a tenant with default settings
 * @name: bytes, not terminated
 * @len: how many
 *
 * Return: 0, -EINVAL for a name that is not allowed, -EEXIST, -ENOSPC for one tenant too many, or
 * -ENOMEM.
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
		err = PTR_ERR_OR_ZERO(gs_tenant_add(copy));
	mutex_unlock(&gs_tree_lock);
	return err;
}

static void gs_tenant_delete(struct gs_tenant *tenant)
{
	gs_tenant_unlink(tenant);
	kobject_del(&tenant->kobj);
	kobject_put(&tenant->kobj);
}

/**
 * gs_tenant_remove() - remove a tenant; its processes move to the default one
 * @name: bytes, not terminated
 * @len: how many
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
	else if (tenant == gs_default)
		err = -EBUSY;
	else
		gs_tenant_delete(tenant);
	mutex_unlock(&gs_tree_lock);
	return err;
}

/**
 * gs_tenants_init() - make tenants/ with the default tenant
 * @root: /sys/kernel/gpushare
 *
 * Return: 0 or a negative errno.
 */
int gs_tenants_init(struct kobject *root)
{
	struct gs_tenant *tenant;

	gs_tenants_dir = kobject_create_and_add("tenants", root);
	if (!gs_tenants_dir)
		return -ENOMEM;
	mutex_lock(&gs_tree_lock);
	tenant = gs_tenant_add(GS_DEFAULT_TENANT);
	mutex_unlock(&gs_tree_lock);
	if (IS_ERR(tenant)) {
		kobject_put(gs_tenants_dir);
		return PTR_ERR(tenant);
	}
	gs_default = tenant;
	return 0;
}

/**
 * gs_tenants_exit() - remove all tenants, the default one last, with every process in it
 *
 * Nobody makes any more: `create` is gone, and no call of the driver comes.
 */
void gs_tenants_exit(void)
{
	struct gs_tenant *tenant, *next;

	mutex_lock(&gs_tree_lock);
	list_for_each_entry_safe(tenant, next, &gs_tenants, node) {
		if (tenant != gs_default)
			gs_tenant_delete(tenant);
	}
	gs_tenant_unlink(gs_default); /* from here on nobody can attach to it */
	gs_processes_exit();
	kobject_del(&gs_default->kobj);
	kobject_put(&gs_default->kobj);
	mutex_unlock(&gs_tree_lock);
	kobject_put(gs_tenants_dir);
}
