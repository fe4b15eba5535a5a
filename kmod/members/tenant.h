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
#include "members/settings.h"
#include "uapi/gpushare.h"

#define GS_CGROUP_PATTERN_BYTES 256

struct task_struct;

/**
 * struct gs_published - What the agent published last of a tenant, as struct gpushare_usage has it.
 * @gpu_time_us: See struct gpushare_usage, as for all of them.
 * @throttled_us: See above.
 * @freezes: See above.
 * @share_permille: It is GPUSHARE_UNKNOWN until the agent has published one.
 */
struct gs_published {
	u64 gpu_time_us;
	u64 throttled_us;
	u64 freezes;
	u32 share_permille;
};

/**
 * struct gs_figures - What the attributes of a tenant show under gs_lock; it is copied whole.
 * @settings: What was written to the settings. The limits are in the tenant's counter too, where
 *	charges read them.
 * @contexts_max: How many contexts it may have, GS_CONTEXTS_NONE for no limit.
 * @match_cgroup: The pattern of cgroup paths, empty if there is none.
 * @has_match_uid: @match_uid is a rule.
 * @match_uid: A user.
 * @published: What the agent published.
 */
struct gs_figures {
	struct gs_settings settings;
	u32 contexts_max;
	char match_cgroup[GS_CGROUP_PATTERN_BYTES];
	bool has_match_uid;
	kuid_t match_uid;
	struct gs_published published;
};

/**
 * struct gs_tenant - A directory below tenants/.
 * @kobj: The directory and its name; the tenant lives as long as this.
 * @node: The place in gs_tenants.
 * @hash: The place in the table by name.
 * @processes: The list of gs_process.tenant_node.
 * @processes_count: Their number.
 * @is_removed: The tenant is not in the list any more, and its directory is about to go.
 * @figures: Settings, rules and what was published.
 * @counter: What it holds and may hold; it needs no lock.
 */
struct gs_tenant {
	struct kobject kobj;
	struct list_head node;
	struct hlist_node hash;
	struct list_head processes;
	unsigned int processes_count;
	bool is_removed;
	struct gs_figures figures;
	struct gs_counter counter;
};

extern struct list_head gs_tenants; /* all tenants, in the order of their creation */
extern unsigned int gs_tenants_count;
extern struct gs_tenant *gs_tenant_default; /* that of processes which no rule names */

void gs_tenant_init(struct gs_tenant *tenant);
struct gs_tenant *gs_tenant_find(const char *name);
struct gs_tenant *gs_tenant_match(struct task_struct *task);
void gs_tenant_link(struct gs_tenant *tenant);
void gs_tenant_unlink(struct gs_tenant *tenant);
void gs_tenant_had_event(struct gs_tenant *tenant);
void gs_tenant_set(struct gs_tenant *tenant, const struct gs_figures *figures,
		   enum gpushare_setting setting);
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting);

#endif /* GPUSHARE_TENANT_H */
