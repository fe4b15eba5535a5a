/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the module knows: tenants, the processes in them, the RM clients and objects those created,
 * and the video memory they hold. One mutex, gs_lock, protects all of it; no function below calls
 * the driver or touches user memory, so it is held for lookups and arithmetic only. Functions that
 * need it say so with lockdep_assert_held().
 *
 *   gs_tenant <- gs_process <- gs_client <- gs_object (a tree) -> gs_charge -> gs_process
 *
 * Reference counts are plain integers under gs_lock. What an object held is given back when the
 * driver has said that it is gone, never earlier.
 */
#ifndef GPUSHARE_STATE_H
#define GPUSHARE_STATE_H

#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "state/settings.h"
#include "uapi/gpushare.h"

#define GS_DEFAULT_TENANT "default"
#define GS_TENANTS_MAX 1024 /* as many as the agent has room for */
#define GS_CGROUP_PATTERN_BYTES 256

extern struct mutex gs_lock;

/**
 * struct gs_tenant - a directory below tenants/
 * @kobj: its directory and its name; the tenant lives as long
 * @node: in the list of all, in the order of creation
 * @hash: by name
 * @processes: gs_process.tenant_node
 * @settings: what was written
 * @match_cgroup: pattern of cgroup paths, empty for none
 * @has_match_uid: @match_uid is a rule
 * @match_uid: in the initial user namespace
 * @is_removed: no longer in the list; its directory is about to go
 * @memory: bytes of video memory held, by GPU
 * @memory_refused: allocations that did not fit
 * @controls_refused: scheduling controls
 * @gpu_time_us: as published by the agent, like all below
 * @throttled_us: see there
 * @freezes: see there
 * @share_permille: GPUSHARE_UNKNOWN before the first
 */
struct gs_tenant {
	struct kobject kobj;
	struct list_head node;
	struct hlist_node hash;
	struct list_head processes;
	struct gs_settings settings;
	char match_cgroup[GS_CGROUP_PATTERN_BYTES];
	bool has_match_uid;
	u32 match_uid;
	bool is_removed;
	u64 memory[GPUSHARE_MAX_GPUS];
	u64 memory_refused;
	u64 controls_refused;
	u64 gpu_time_us;
	u64 throttled_us;
	u64 freezes;
	u32 share_permille;
};

/* Bits of gs_process.ending, set by the scheduler's tracepoints without gs_lock. */
#define GS_ENDING_EXEC 0
#define GS_ENDING_EXIT 1

/**
 * struct gs_process - a process that uses the driver, or was attached to a tenant
 * @hash: by @pid, readers under RCU; not in it once @is_gone
 * @rcu: for freeing
 * @pid: of the thread group; a reference, so it is not reused while this exists
 * @start_ticks: field 22 of /proc/PID/stat
 * @refs: the hash, each client, each charge, each call in progress
 * @tenant: never NULL
 * @tenant_node: in the tenant's list
 * @node: in the list of all
 * @clients: gs_client.process_node
 * @is_attached: its tenant was chosen by a write to procs, and holds for its children
 * @is_opened: it has used the driver, events about it were sent
 * @is_gone: it exited; only what it left behind keeps it here
 * @ending: GS_ENDING_*: to be handled by gs_process_end()
 * @memory: bytes of video memory, by GPU
 * @refused_at: jiffies of the last refusal that was reported
 * @refused_unreported: refusals since, for the next report
 */
struct gs_process {
	struct hlist_node hash;
	struct rcu_head rcu;
	struct pid *pid;
	u64 start_ticks;
	unsigned int refs;
	struct gs_tenant *tenant;
	struct list_head tenant_node;
	struct list_head node;
	struct list_head clients;
	bool is_attached;
	bool is_opened;
	bool is_gone;
	unsigned long ending;
	u64 memory[GPUSHARE_MAX_GPUS];
	unsigned long refused_at;
	u64 refused_unreported;
};

/**
 * struct gs_client - an RM client
 * @by_handle: hash; handles of living clients are unique, but what we remember may be stale. One
 *	that is unsure is in another table, by its file
 * @by_file: hash
 * @process_node: in its process's list
 * @process: that made it
 * @file: that it was made on; the driver frees it when that is released. Compared, never used
 * @handle: RM's name of it
 * @fd: the process's descriptor of @file, -1 unknown
 * @refs: 1 while alive, and each call in progress
 * @is_dead: freed
 * @is_unsure: a caller named it, and the driver has not yet acknowledged it
 * @objects: those without a parent that we know
 * @order: held across the driver's work by calls that make or free something of this client, so
 *	that what is remembered changes in the order in which the driver did it. Taken before
 *	gs_lock; only this client's own callers can be kept waiting, and by another process no
 *	longer than the driver works: gs_filter_dup()
 */
struct gs_client {
	struct hlist_node by_handle;
	struct hlist_node by_file;
	struct list_head process_node;
	struct gs_process *process;
	const struct file *file;
	u32 handle;
	s32 fd;
	unsigned int refs;
	bool is_dead;
	bool is_unsure;
	struct list_head objects;
	struct mutex order; /* see @order */
};

/*
 * Video memory held by one or more objects (a duplicate keeps it); see memory.c. Stands in the
 * object that was made first, and keeps that one's memory while it is held.
 */
struct gs_charge {
	unsigned int refs;
	struct gs_process *process;
	u32 instance;
	u64 bytes;
};

/**
 * struct gs_object - an RM object below a client
 * @hash: by @client and @handle; of a record that is to be used again, the next such
 * @client: it is below
 * @handle: RM's name of it, below its client
 * @refs: 1 while alive, each call in progress, and 1 while @own_charge is held
 * @is_dead: freed
 * @parent: NULL when it is not one that we know
 * @sibling: in the parent's or the client's list
 * @children: freed with it
 * @parent_handle: as the caller named it
 * @class_id: RM class
 * @instance: of the GPU it is on; of a device its own
 * @engine_type: of a group
 * @fd: of a group, the descriptor it was made on
 * @is_scheduled: a GPFIFO_SCHEDULE was let through
 * @is_sliced: a SET_TIMESLICE was let through
 * @is_video: memory of the GPU
 * @bytes: of memory
 * @charge: of video memory: @own_charge, or that of another
 * @own_charge: see there
 */
struct gs_object {
	struct hlist_node hash;
	struct gs_client *client;
	u32 handle;
	unsigned int refs;
	bool is_dead;
	bool is_scheduled;
	bool is_sliced;
	bool is_video;
	struct gs_object *parent;
	struct list_head sibling;
	struct list_head children;
	u32 parent_handle;
	u32 class_id;
	u32 instance;
	u32 engine_type;
	s32 fd;
	u64 bytes;
	struct gs_charge *charge;
	struct gs_charge own_charge;
};

/* tenants.c */
struct gs_tenant *gs_tenant_find(const char *name);
struct gs_tenant *gs_tenant_default(void);
struct gs_tenant *gs_tenant_match(struct task_struct *task);
int gs_tenant_create(const char *name, size_t len);
int gs_tenant_remove(const char *name, size_t len);
int gs_tenants_init(struct kobject *root);
void gs_tenants_exit(void);
void gs_tenant_changed(struct gs_tenant *tenant, enum gpushare_setting setting);

/* processes.c */
struct gs_process *gs_process_of_current(void);
void gs_process_send_opened(struct gs_process *process, u32 flags);
void gs_process_free(struct gs_process *process);
void gs_process_move(struct gs_process *process, struct gs_tenant *tenant);
int gs_process_attach(pid_t pid, struct gs_tenant *tenant);
struct gs_process *gs_process_find_rcu(const struct pid *pid);
void gs_processes_end_marked(void);
void gs_processes_replay(void);
void gs_processes_exit(void);

/* clients.c */
struct gs_client *gs_client_new(void);
void gs_object_free(struct gs_object *object);
struct gs_client *gs_client_find(u32 handle, const struct file *file,
				 const struct gs_process *process);
struct gs_client *gs_client_find_unsure(u32 handle, const struct file *file);
void gs_client_adopt(struct gs_client *client, struct gs_process *process, const struct file *file,
		     u32 handle);
void gs_client_acknowledge(struct gs_client *client);
void gs_client_add(struct gs_client *client, struct gs_process *process, const struct file *file,
		   u32 handle, s32 fd);
void gs_client_destroy(struct gs_client *client);
void gs_client_free(struct gs_client *client);
void gs_object_add(struct gs_object *object, struct gs_client *client, struct gs_object *parent,
		   u32 parent_handle, u32 handle);
void gs_object_destroy(struct gs_object *object);
void gs_clients_file_closed(const struct file *file);
void gs_clients_forget(void);
void gs_client_replay(struct gs_client *client);
void gs_object_event(struct gpushare_event *event, const struct gs_process *process, u32 client,
		     const struct gs_object *object);
int gs_clients_init(void);
void gs_clients_exit(void);

/* memory.c */
int gs_charge_try(struct gs_process *process, struct gs_object *object, u64 bytes);
void gs_charge_correct(struct gs_charge *charge, u64 bytes);
void gs_object_drop_charge(struct gs_object *object);
void gs_memory_move(struct gs_process *process, struct gs_tenant *to);

/* All below needs gs_lock. In line, because every call that is remembered passes it. */

/**
 * gs_process_put() - drop a reference
 * @process: freed with the last one
 */
static inline void gs_process_put(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (!--process->refs)
		gs_process_free(process);
}

/**
 * gs_client_put() - drop a reference
 * @client: freed with the last one
 */
static inline void gs_client_put(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	if (!--client->refs)
		gs_client_free(client);
}

/**
 * gs_object_put() - drop a reference
 * @object: freed with the last one
 */
static inline void gs_object_put(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	if (!--object->refs)
		gs_object_free(object);
}

/**
 * gs_process_is_current() - is it the caller's, with nothing to be done about it first?
 * @process: any
 *
 * Return: true when gs_process_of_current() would find it.
 */
static inline bool gs_process_is_current(const struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	return process->pid == task_tgid(current) && !process->is_gone &&
	       !READ_ONCE(process->ending);
}

/**
 * gs_process_open() - it uses the driver; reported once
 * @process: the calling one
 */
static inline void gs_process_open(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (process->is_opened)
		return;
	process->is_opened = true;
	gs_process_send_opened(process, 0);
}

#endif /* GPUSHARE_STATE_H */
