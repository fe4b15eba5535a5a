/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes that use the driver, or that were attached to a tenant or descend from one that
 * was. All functions need gs_lock unless they say otherwise.
 */
#ifndef GPUSHARE_PROCESS_H
#define GPUSHARE_PROCESS_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>

#include "state/lock.h"
#include "state/stream.h"
#include "state/tenant.h"

/* The bits of gs_process.marks, which tracepoints set without gs_lock: it has done this. */
#define GS_MARK_EXEC 0
#define GS_MARK_EXIT 1
#define GS_MARK_CGROUP 2 /* It is in another cgroup. */

/* Why a process is to be reported as closed when its last client is gone. */
enum gs_closing { GS_CLOSING_NOT, GS_CLOSING_EXEC, GS_CLOSING_EXIT };

/**
 * struct gs_process - A process.
 * @hash: The place in the table by pid, which readers may walk under RCU. A process with @is_gone
 *	is not in it.
 * @rcu: For freeing.
 * @pending: The place in the list of processes that were forked and are in no other list yet.
 * @marked: The place in the list of processes with marks, while @is_marked is set.
 * @is_marked: See @marked, which has a reference then.
 * @id: What names it. It holds a reference on the pid, which is therefore not reused meanwhile.
 * @refs: The hash has one, and so have each client, each charge and each call in progress. With the
 *	last one it is freed, which needs gs_lock.
 * @tenant: Never NULL. It is changed under gs_processes_lock too.
 * @tenant_node: The place in the tenant's list.
 * @node: The place in gs_processes.
 * @clients: The list of gs_client.process_node.
 * @is_attached: A write to procs chose its tenant, or that of an ancestor before it forked. It
 *	holds for its children too.
 * @is_opened: It has used the driver, and events about it were sent.
 * @is_gone: It has exited, and only what it left behind keeps it here.
 * @closing: It has exited or called exec, and has clients left that another process holds open, or
 *	that survived exec.
 * @marks: The bits GS_MARK_* that have not been handled yet.
 * @opened: What the event of its opening says, without the tenant.
 * @memory: The bytes of video memory that it holds, by GPU.
 * @contexts: The number of contexts that it has.
 * @refused_at: The jiffies of the last refusal that was reported.
 * @refused_unreported: The number of refusals since then, for the next report.
 */
struct gs_process {
	struct hlist_node hash;
	struct rcu_head rcu;
	struct list_head pending;
	struct llist_node marked;
	atomic_t is_marked;
	struct gs_identity id;
	refcount_t refs;
	struct gs_tenant *tenant;
	struct list_head tenant_node;
	struct list_head node;
	struct list_head clients;
	bool is_attached;
	bool is_opened;
	bool is_gone;
	enum gs_closing closing;
	unsigned long marks;
	struct gpushare_event_opened opened;
	u64 memory[GPUSHARE_MAX_GPUS];
	u32 contexts;
	unsigned long refused_at;
	u64 refused_unreported;
};

extern struct list_head gs_processes; /* all of them, under gs_lock */

void gs_process_send_opened(struct gs_process *process, u32 flags);
void gs_process_free(struct gs_process *process);
void gs_process_lost_client(struct gs_process *process);
bool gs_process_reports_refusal(struct gs_process *process, u64 *repeats);
void gs_processes_leave(struct gs_tenant *tenant);
struct gs_process *gs_process_find_rcu(const struct pid *pid); /* gs_lock or rcu_read_lock() */

/* The caller's process with one more reference, or NULL; gs_lock may be let go of meanwhile. */
struct gs_process *gs_process_of_current(void);

/* These take gs_lock themselves. */
int gs_process_attach(const struct file *file, pid_t pid, struct gs_tenant *tenant);
void gs_processes_tidy(void);
void gs_processes_exit(void);

/* hook/exits.c calls these from tracepoints. They return true if gs_processes_tidy() is needed. */
bool gs_process_mark(struct task_struct *task, int mark);
bool gs_process_forked(struct task_struct *parent, struct task_struct *child);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_process_put() - Drop a reference.
 * @process: It is freed with the last one.
 */
static inline void gs_process_put(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	if (refcount_dec_and_test(&process->refs))
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
	       !READ_ONCE(process->marks);
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
	gs_tenant_uses_memory(process->tenant, instance, bytes);
}

#endif /* GPUSHARE_PROCESS_H */
