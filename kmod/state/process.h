/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes that use the driver, or that were attached to a tenant. All functions need gs_lock
 * unless they say otherwise.
 */
#ifndef GPUSHARE_PROCESS_H
#define GPUSHARE_PROCESS_H

#include <linux/list.h>
#include <linux/sched/signal.h>

#include "state/lock.h"
#include "state/stream.h"
#include "state/tenant.h"

/* The bits of gs_process.ending. The scheduler's tracepoints set them without gs_lock. */
#define GS_ENDING_EXEC 0
#define GS_ENDING_EXIT 1

/**
 * struct gs_process - A process.
 * @hash: The place in the table by pid, which readers may walk under RCU. A process with @is_gone
 *	is not in it.
 * @rcu: For freeing.
 * @id: What names it. It holds a reference on the pid, which is therefore not reused meanwhile.
 * @refs: The hash has one, and so have each client, each charge and each call in progress.
 * @tenant: Never NULL.
 * @tenant_node: The place in the tenant's list.
 * @node: The place in gs_processes.
 * @clients: The list of gs_client.process_node.
 * @is_attached: A write to procs chose its tenant, which holds for its children too.
 * @is_opened: It has used the driver, and events about it were sent.
 * @is_gone: It has exited, and only what it left behind keeps it here.
 * @ending: The marks GS_ENDING_* that have not been handled yet.
 * @memory: The bytes of video memory that it holds, by GPU.
 * @refused_at: The jiffies of the last refusal that was reported.
 * @refused_unreported: The number of refusals since then, for the next report.
 */
struct gs_process {
	struct hlist_node hash;
	struct rcu_head rcu;
	struct gs_identity id;
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

extern struct list_head gs_processes; /* all of them, under gs_lock */

struct gs_process *gs_process_of_current(void);
void gs_process_send_opened(struct gs_process *process, u32 flags);
void gs_process_free(struct gs_process *process);
bool gs_process_reports_refusal(struct gs_process *process, u64 *repeats);
void gs_processes_leave(struct gs_tenant *tenant);
struct gs_process *gs_process_find_rcu(const struct pid *pid); /* gs_lock or rcu_read_lock() */

/* These take gs_lock themselves. */
int gs_process_attach(pid_t pid, struct gs_tenant *tenant);
void gs_processes_end_marked(void);
void gs_processes_exit(void);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_process_put() - Drop a reference.
 * @process: It is freed with the last one.
 */
static inline void gs_process_put(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (!--process->refs)
		gs_process_free(process);
}

/**
 * gs_process_is_current() - Is this the caller's process, with nothing to be done about it first?
 * @process: Any process.
 *
 * Return: True if gs_process_of_current() would find it.
 */
static inline bool gs_process_is_current(const struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	return process->id.pid == task_tgid(current) && !process->is_gone &&
	       !READ_ONCE(process->ending);
}

/**
 * gs_process_open() - Report that a process uses the driver, if that was not reported before.
 * @process: The calling process.
 */
static inline void gs_process_open(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (process->is_opened)
		return;
	process->is_opened = true;
	gs_process_send_opened(process, 0);
}

/**
 * gs_process_uses_memory() - Count video memory for a process and for its tenant.
 * @process: The process that holds the memory.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: How much more it holds from now on; less, modulo 2^64, if memory is given back.
 */
static inline void gs_process_uses_memory(struct gs_process *process, u32 instance, u64 bytes)
{
	lockdep_assert_held(&gs_lock);
	process->memory[instance] += bytes;
	process->tenant->memory[instance] += bytes;
}

#endif /* GPUSHARE_PROCESS_H */
