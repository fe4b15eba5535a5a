/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes that use the driver, or that were attached to a tenant or descend from one that
 * was: their records, and what is told of them. fork.h, marks.h, moves.h, attach.h and current.h
 * have what happens to them. All functions need gs_lock unless they say otherwise.
 */
#ifndef GPUSHARE_PROCESS_H
#define GPUSHARE_PROCESS_H

#include <linux/list.h>
#include <linux/llist.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>

#include "members/tenant.h"
#include "news/lock.h"
#include "news/stream.h"

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
 * @marked: The place in the list of processes with marks, while @is_marked is set; at last that in
 *	the list of processes to be freed.
 * @is_marked: See @marked, which has a reference then.
 * @id: What names it. It holds a reference on the pid, which is therefore not reused meanwhile.
 * @refs: The hash has one, and so have each client, each charge and each call in progress. With the
 *	last one it is freed, a little later.
 * @tenant: Never NULL. It is changed under gs_lock, gs_processes_lock and @lock, and read under any
 *	of them.
 * @tenant_node: The place in the tenant's list.
 * @node: The place in gs_processes.
 * @clients: The list of gs_client.process_node.
 * @is_attached: A write to procs chose its tenant, or that of an ancestor before it forked. It
 *	holds for its children too.
 * @is_opened: It has used the driver, and events about it were sent. It is read without a lock.
 * @is_gone: It has exited, and only what it left behind keeps it here. It is read without a lock.
 * @closing: It has exited or called exec, and has clients left that another process holds open, or
 *	that survived exec.
 * @marks: The bits GS_MARK_* that have not been handled yet.
 * @opened: What the event of its opening says, without the tenant.
 * @lock: It protects the members below, and @tenant.
 * @memory: The bytes of video memory that are charged for it, by GPU.
 * @memory_held: The bytes of these that the driver has given.
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
	spinlock_t lock; /* see @lock */
	u64 memory[GPUSHARE_MAX_GPUS];
	u64 memory_held;
	u32 contexts;
	unsigned long refused_at;
	u64 refused_unreported;
};

#define GS_TICK_NS (NSEC_PER_SEC / USER_HZ)

/* The start time of a process as struct gs_identity has it. @leader is its first thread. */
static inline u64 gs_start_ticks(const struct task_struct *leader)
{
	return div_u64(leader->start_boottime, GS_TICK_NS);
}

extern struct list_head gs_processes; /* all of them, under gs_lock */

/*
 * A process that is forked is added to the table at once, in a tracepoint, where gs_lock cannot be
 * taken; the other lists follow. gs_processes_lock protects the table and what a fork reads of the
 * parent. It is taken inside gs_lock. A record is taken out of the table under both.
 */
extern raw_spinlock_t gs_processes_lock;

struct gs_process *gs_process_find_rcu(const struct pid *pid); /* gs_lock or rcu_read_lock() */
void gs_process_insert(struct gs_process *process);            /* gs_processes_lock */
void gs_process_link(struct gs_process *process);
void gs_process_drop(struct gs_process *process);

/* These need no lock. */
struct gs_process *gs_process_alloc(gfp_t flags);
struct gs_process *gs_process_new(struct task_struct *task);
void gs_process_discard(struct gs_process *process);
void gs_process_free_later(struct gs_process *process);
void gs_processes_wait(void);
void gs_process_open_first(struct gs_process *process); /* takes gs_lock */
bool gs_process_reports_refusal(struct gs_process *process, u64 *repeats);

void gs_process_send_opened(struct gs_process *process, u32 flags);
void gs_process_send_closed(struct gs_process *process, bool by_exec);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_process_put() - Drop a reference. It needs no lock.
 * @process: It is freed with the last one.
 */
static inline void gs_process_put(struct gs_process *process)
{
	if (refcount_dec_and_test(&process->refs))
		gs_process_free_later(process);
}

/**
 * gs_process_open() - Report that a process uses the driver, if that was not reported before.
 * @process: The calling process. No lock may be held but the order of a client.
 *
 * An event about it that is sent afterwards comes after that report. (There is one exception: a
 * process that called exec while another one held a client of it open, which is closed just now.
 * Then the agent hears of an object of a process that it thinks to be closed, and takes it for
 * open again, which it is.)
 */
static inline void gs_process_open(struct gs_process *process)
{
	/* This pairs with the release in gs_process_open_first(), after the report. */
	if (!smp_load_acquire(&process->is_opened))
		gs_process_open_first(process);
}

/**
 * gs_process_got_memory() - Count video memory that the driver has given to a process.
 * @process: The process.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @charged: What was charged for it.
 * @bytes: What the driver gave, which is charged from now on.
 */
static inline void gs_process_got_memory(struct gs_process *process, u32 instance, u64 charged,
					 u64 bytes)
{
	spin_lock(&process->lock);
	if (unlikely(bytes != charged)) {
		process->memory[instance] += bytes - charged;
		gs_counter_add_memory(&process->tenant->counter, NULL, instance, bytes - charged);
	}
	process->memory_held += bytes;
	gs_counter_hold_memory(&process->tenant->counter, NULL, bytes);
	spin_unlock(&process->lock);
}

/**
 * gs_process_lost_memory() - Take back what was charged for a process.
 * @process: The process.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: What was charged.
 * @is_held: The driver has given it, and has freed it now.
 */
static inline void gs_process_lost_memory(struct gs_process *process, u32 instance, u64 bytes,
					  bool is_held)
{
	struct gs_counter *counter;

	spin_lock(&process->lock);
	counter = &process->tenant->counter;
	if (is_held) {
		process->memory_held -= bytes;
		gs_counter_hold_memory(counter, NULL, -bytes);
	}
	process->memory[instance] -= bytes;
	gs_counter_add_memory(counter, NULL, instance, -bytes);
	spin_unlock(&process->lock);
}

/* Counts that a context of a process is gone. */
static inline void gs_process_lost_context(struct gs_process *process)
{
	spin_lock(&process->lock);
	process->contexts--;
	gs_counter_add_contexts(&process->tenant->counter, NULL, -1);
	spin_unlock(&process->lock);
}

#endif /* GPUSHARE_PROCESS_H */
