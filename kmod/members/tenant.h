/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tenants: how they are found by name, and which one a rule gives to a process. sysfs/tenants.c
 * makes and removes them with their directories. All functions need gs_lock.
 */
#ifndef GPUSHARE_TENANT_H
#define GPUSHARE_TENANT_H

#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/uidgid.h>

#include "news/lock.h"
#include "members/counter.h"
#include "members/names.h"
#include "members/settings.h"
#include "uapi/gpushare.h"

#define GS_CGROUP_PATTERN_BYTES 256

struct task_struct;

/**
 * struct gs_cap - GPU time per period.
 * @quota_us: GS_QUOTA_NONE for no limit.
 * @period_us: It keeps its value while there is none.
 */
struct gs_cap {
	u32 quota_us;
	u32 period_us;
};

/**
 * struct gs_figures - What the attributes of a tenant show under gs_lock; it is copied whole.
 * @settings: What was written to the settings. The limits are in the tenant's counter too, where
 *	charges read them.
 * @contexts_max: How many contexts it may have, GS_CONTEXTS_NONE for no limit.
 * @gpu_memory_max: How much memory it may hold on each GPU, besides memory_max.
 * @gpu_max: How much time it may have of each GPU, besides max, which is the agent's work.
 * @is_frozen: Its processes are to stand still, which is the agent's work.
 * @match_cgroup: The pattern of cgroup paths, empty if there is none.
 * @has_match_uid: @match_uid is a rule.
 * @match_uid: A user.
 * @published: What the agent published last. Its share is GPUSHARE_UNKNOWN until then.
 */
struct gs_figures {
	struct gs_settings settings;
	u32 contexts_max;
	u64 gpu_memory_max[GPUSHARE_MAX_GPUS];
	struct gs_cap gpu_max[GPUSHARE_MAX_GPUS];
	bool is_frozen;
	char match_cgroup[GS_CGROUP_PATTERN_BYTES];
	bool has_match_uid;
	kuid_t match_uid;
	struct gpushare_usage published;
};

/**
 * struct gs_tenant - A directory below tenants/.
 * @kobj: The directory; the tenant lives as long as this.
 * @name: Its path from tenants/ on. It never changes, like the next two.
 * @parent: The tenant above, which lives as long as this; NULL at the top.
 * @owner: The user to whom its files belong at first: who made it.
 * @children: The number of tenants directly below, under gs_tree_lock.
 * @below: Of a tenant at the top, the number of all that are below, under gs_tree_lock.
 * @node: The place in gs_tenants.
 * @hash: The place in the table by name.
 * @processes: The list of gs_process.tenant_node.
 * @processes_count: Their number.
 * @is_linked: The tenant is in the list. Its directory comes before that, and goes after that;
 *	meanwhile nothing can be written there.
 * @figures: Settings, rules and what was published.
 * @counter: What it holds and may hold; it needs no lock.
 */
struct gs_tenant {
	struct kobject kobj;
	char name[GS_NAME_MAX + 1];
	struct gs_tenant *parent;
	kuid_t owner;
	unsigned int children;
	unsigned int below;
	struct list_head node;
	struct hlist_node hash;
	struct list_head processes;
	unsigned int processes_count;
	bool is_linked;
	struct gs_figures figures;
	struct gs_counter counter;
};

/* The tenant at the top of the tree that one is in. */
static inline struct gs_tenant *gs_tenant_top(struct gs_tenant *tenant)
{
	while (tenant->parent)
		tenant = tenant->parent;
	return tenant;
}

extern struct list_head gs_tenants; /* all tenants, in the order of their creation */
extern unsigned int gs_tenants_count;
extern struct gs_tenant *gs_tenant_default; /* that of processes which no rule names */

void gs_tenant_init(struct gs_tenant *tenant, const char *name, struct gs_tenant *parent);
struct gs_tenant *gs_tenant_find(const char *name);
struct gs_tenant *gs_tenant_match(struct task_struct *task);
void gs_tenant_link(struct gs_tenant *tenant);
void gs_tenant_unlink(struct gs_tenant *tenant);
void gs_tenant_had_event(struct gs_tenant *tenant);
void gs_tenant_set(struct gs_tenant *tenant, const struct gs_figures *figures,
		   enum gpushare_setting setting);
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting);

#endif /* GPUSHARE_TENANT_H */
