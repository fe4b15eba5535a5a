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

#include "state/lock.h"
#include "state/settings.h"
#include "uapi/gpushare.h"

#define GS_CGROUP_PATTERN_BYTES 256
#define GS_CONTEXTS_NONE U32_MAX
#define GS_CONTEXTS_MAX 1000000

struct task_struct;

/**
 * struct gs_tenant - A directory below tenants/.
 * @kobj: The directory and its name; the tenant lives as long as this.
 * @node: The place in gs_tenants.
 * @hash: The place in the table by name.
 * @processes: The list of gs_process.tenant_node.
 * @processes_count: Their number.
 * @settings: What was written to the attributes.
 * @match_cgroup: The pattern of cgroup paths, empty if there is none.
 * @has_match_uid: @match_uid is a rule.
 * @match_uid: A user.
 * @is_removed: The tenant is not in the list any more, and its directory is about to go.
 * @memory: The bytes of video memory that it holds, by GPU.
 * @memory_current: Their sum.
 * @memory_peak: The most that this was.
 * @contexts: The number of contexts that it has.
 * @contexts_max: How many it may have, GS_CONTEXTS_NONE for no limit.
 * @memory_refused: The number of allocations that did not fit.
 * @contexts_refused: The number of contexts beyond the limit.
 * @controls_refused: The number of scheduling controls that were refused.
 * @gpu_time_us: The agent publishes this and the members below, as struct gpushare_usage has them.
 * @throttled_us: See struct gpushare_usage.
 * @freezes: See struct gpushare_usage.
 * @share_permille: It is GPUSHARE_UNKNOWN until the agent has published one.
 */
struct gs_tenant {
	struct kobject kobj;
	struct list_head node;
	struct hlist_node hash;
	struct list_head processes;
	unsigned int processes_count;
	struct gs_settings settings;
	char match_cgroup[GS_CGROUP_PATTERN_BYTES];
	bool has_match_uid;
	kuid_t match_uid;
	bool is_removed;
	u64 memory[GPUSHARE_MAX_GPUS];
	u64 memory_current;
	u64 memory_peak;
	u32 contexts;
	u32 contexts_max;
	u64 memory_refused;
	u64 contexts_refused;
	u64 controls_refused;
	u64 gpu_time_us;
	u64 throttled_us;
	u64 freezes;
	u32 share_permille;
};

extern struct list_head gs_tenants; /* all tenants, in the order of their creation */
extern unsigned int gs_tenants_count;
extern struct gs_tenant *gs_tenant_default; /* that of processes which no rule names */

struct gs_tenant *gs_tenant_find(const char *name);
struct gs_tenant *gs_tenant_match(struct task_struct *task);
void gs_tenant_link(struct gs_tenant *tenant);
void gs_tenant_unlink(struct gs_tenant *tenant);
void gs_tenant_had_event(struct gs_tenant *tenant);
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting);

/**
 * gs_tenant_uses_memory() - Count video memory.
 * @tenant: The tenant that holds it.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: How much more it holds from now on; less, modulo 2^64, if memory is given back.
 */
static inline void gs_tenant_uses_memory(struct gs_tenant *tenant, u32 instance, u64 bytes)
{
	lockdep_assert_held(&gs_lock);
	tenant->memory[instance] += bytes;
	tenant->memory_current += bytes;
	if (tenant->memory_current > tenant->memory_peak)
		tenant->memory_peak = tenant->memory_current;
}

#endif /* GPUSHARE_TENANT_H */
