// SPDX-License-Identifier: GPL-2.0
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/stringhash.h>
#include <linux/sysfs.h>
#include <linux/user_namespace.h>

#include "compat/version.h"
#include "news/announce.h"
#include "members/names.h"
#include "news/stream.h"
#include "members/tenant.h"

LIST_HEAD(gs_tenants);
unsigned int gs_tenants_count;
struct gs_tenant *gs_tenant_default;
static DEFINE_HASHTABLE(gs_tenants_by_name, 10);

static u32 gs_name_hash(const char *name)
{
	return full_name_hash(NULL, name, strlen(name));
}

/**
 * gs_tenant_find() - Find a tenant by its path.
 * @name: The path, zero-terminated.
 *
 * Return: The tenant, which is valid while gs_lock is held, or NULL.
 */
struct gs_tenant *gs_tenant_find(const char *name)
{
	struct gs_tenant *tenant;

	lockdep_assert_held(&gs_lock);
	hash_for_each_possible(gs_tenants_by_name, tenant, hash, gs_name_hash(name)) {
		if (strcmp(tenant->name, name) == 0)
			return tenant;
	}
	return NULL;
}

/*
 * The path of a cgroup. Of a path that does not fit it is the nearest ancestor's whose path does,
 * so that a rule for all below that holds.
 */
static bool gs_cgroup_path(struct cgroup *cgroup, char *path, size_t bytes)
{
	int len;

	for (; cgroup; cgroup = cgroup_parent(cgroup)) {
		len = cgroup_path(cgroup, path, bytes);
		if (len >= 0 && (size_t)len < bytes)
			return true;
	}
	return false;
}

/* Does a pattern match a cgroup that a task is in, in a hierarchy of v1 that has a controller? */
static bool gs_v1_matches(const char *pattern, struct task_struct *task)
{
	static char path[PATH_MAX]; /* under gs_lock */
	const struct cgroup_root *root = task_dfl_cgroup(task)->root;
	struct cgroup *cgroup;
	int i;

	for (i = 0; i < CGROUP_SUBSYS_COUNT; i++) {
		cgroup = task_css_set(task)->subsys[i]->cgroup;
		if (cgroup->root != root && gs_cgroup_path(cgroup, path, sizeof(path)) &&
		    gs_glob_matches(pattern, path))
			return true;
	}
	return false;
}

/* The first tenant whose pattern matches a cgroup of the task, or NULL. */
static struct gs_tenant *gs_tenant_of_cgroup(struct task_struct *task)
{
	static char path[PATH_MAX]; /* in the hierarchy of v2, under gs_lock */
	struct gs_tenant *tenant;
	bool has_path = false;

	list_for_each_entry(tenant, &gs_tenants, node) {
		if (!tenant->figures.match_cgroup[0])
			continue;
		if (!has_path && !gs_cgroup_path(task_dfl_cgroup(task), path, sizeof(path)))
			path[0] = '\0';
		has_path = true;
		if ((path[0] && gs_glob_matches(tenant->figures.match_cgroup, path)) ||
		    gs_v1_matches(tenant->figures.match_cgroup, task))
			return tenant;
	}
	return NULL;
}

/*
 * Does a process run for a user? It does as that user, and as any other in a namespace that the
 * user has made, which may map ids that were given to the user (as rootless containers do). A
 * namespace that root has made is nobody's.
 */
static bool gs_task_runs_for(struct task_struct *task, kuid_t uid)
{
	const struct user_namespace *ns = __task_cred(task)->user_ns;

	if (uid_eq(task_uid(task), uid))
		return true;
	for (; ns != &init_user_ns; ns = ns->parent) {
		if (uid_eq(ns->owner, uid) && !uid_eq(uid, GLOBAL_ROOT_UID))
			return true;
	}
	return false;
}

/* The first tenant that has a rule for the user of the task, or NULL. */
static struct gs_tenant *gs_tenant_of_user(struct task_struct *task)
{
	struct gs_tenant *tenant;

	list_for_each_entry(tenant, &gs_tenants, node) {
		if (tenant->figures.has_match_uid &&
		    gs_task_runs_for(task, tenant->figures.match_uid))
			return tenant;
	}
	return NULL;
}

/**
 * gs_tenant_match() - Find the tenant that the rules give to a process.
 * @task: Any thread of the process.
 *
 * This is the first tenant whose match_cgroup matches, otherwise the first whose match_uid does,
 * otherwise the default tenant. The order is that of their creation.
 *
 * Return: The tenant, never NULL.
 */
struct gs_tenant *gs_tenant_match(struct task_struct *task)
{
	struct gs_tenant *tenant;

	lockdep_assert_held(&gs_lock);
	rcu_read_lock();
	tenant = gs_tenant_of_cgroup(task) ?: gs_tenant_of_user(task);
	rcu_read_unlock();
	return tenant ?: gs_tenant_default;
}

/**
 * gs_tenant_changed() - Tell all programs that wait for a change of settings.
 * @tenant: The tenant that changed.
 * @setting: What of it changed.
 */
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	gs_event_init(&event, GPUSHARE_EVENT_SETTINGS_CHANGED);
	event.settings.setting = setting;
	strscpy(event.settings.tenant, tenant->name, sizeof(event.settings.tenant));
	gs_event_send(&event, NULL);
	gs_announce(GS_NEWS_SETTINGS);
}

/**
 * gs_tenant_set() - Give a tenant other settings.
 * @tenant: The tenant.
 * @figures: A copy of its figures in which a setting was changed.
 * @setting: Which one.
 */
void gs_tenant_set(struct gs_tenant *tenant, const struct gs_figures *figures,
		   enum gpushare_setting setting)
{
	u32 gpu;

	lockdep_assert_held(&gs_lock);
	tenant->figures = *figures;
	WRITE_ONCE(tenant->counter.memory_max, figures->settings.memory_max);
	WRITE_ONCE(tenant->counter.contexts_max, figures->contexts_max);
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++)
		WRITE_ONCE(tenant->counter.gpu_memory_max[gpu], figures->gpu_memory_max[gpu]);
	gs_tenant_changed(tenant, setting);
}

/**
 * gs_tenant_had_event() - Wake the programs that poll `events` of a tenant or of one above.
 * @tenant: A tenant that is linked, so its directory is there.
 */
void gs_tenant_had_event(struct gs_tenant *tenant)
{
	lockdep_assert_held(&gs_lock);
	for (; tenant; tenant = tenant->parent)
		sysfs_notify(&tenant->kobj, NULL, "events");
}

/**
 * gs_tenant_init() - Give a tenant default settings.
 * @tenant: Zeroed memory.
 * @name: Its path, which is valid.
 * @parent: The tenant above, NULL at the top.
 */
void gs_tenant_init(struct gs_tenant *tenant, const char *name, struct gs_tenant *parent)
{
	u32 gpu;

	INIT_LIST_HEAD(&tenant->processes);
	gs_settings_init(&tenant->figures.settings);
	tenant->figures.contexts_max = GS_CONTEXTS_NONE;
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		tenant->figures.gpu_memory_max[gpu] = GS_MEMORY_NONE;
		tenant->figures.gpu_max[gpu].quota_us = GS_QUOTA_NONE;
		tenant->figures.gpu_max[gpu].period_us = GPUSHARE_PERIOD_US_DEFAULT;
	}
	tenant->figures.published.share_permille = GPUSHARE_UNKNOWN;
	gs_counter_init(&tenant->counter, parent ? &parent->counter : NULL);
	strscpy(tenant->name, name, sizeof(tenant->name));
	tenant->parent = parent;
	tenant->owner = GLOBAL_ROOT_UID;
}

/**
 * gs_tenant_link() - Let a tenant be found from now on.
 * @tenant: A tenant with a name and default settings. The first one becomes the default tenant.
 */
void gs_tenant_link(struct gs_tenant *tenant)
{
	lockdep_assert_held(&gs_lock);
	list_add_tail(&tenant->node, &gs_tenants);
	hash_add(gs_tenants_by_name, &tenant->hash, gs_name_hash(tenant->name));
	gs_tenants_count++;
	tenant->is_linked = true;
	if (!gs_tenant_default)
		gs_tenant_default = tenant;
	gs_tenant_changed(tenant, GPUSHARE_SETTING_CREATED);
}

/**
 * gs_tenant_unlink() - Let a tenant not be found any more.
 * @tenant: A tenant that is linked. From here on no process can be attached to it. The caller tells
 *	of it when its processes have left.
 */
void gs_tenant_unlink(struct gs_tenant *tenant)
{
	lockdep_assert_held(&gs_lock);
	list_del(&tenant->node);
	hash_del(&tenant->hash);
	gs_tenants_count--;
	tenant->is_linked = false;
}
