// SPDX-License-Identifier: GPL-2.0
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "compat/version.h"
#include "members/process.h"

DEFINE_RAW_SPINLOCK(gs_processes_lock);
static DEFINE_HASHTABLE(gs_processes_by_pid, 10); /* read under RCU */
static LLIST_HEAD(gs_processes_to_free);
LIST_HEAD(gs_processes);

/**
 * gs_process_find_rcu() - Find the process of a thread group.
 * @pid: The pid of the thread group.
 *
 * It needs gs_lock or rcu_read_lock().
 *
 * Return: The process or NULL.
 */
struct gs_process *gs_process_find_rcu(const struct pid *pid)
{
	struct gs_process *process;

	hash_for_each_possible_rcu(gs_processes_by_pid, process, hash, (unsigned long)pid,
				   lockdep_is_held(&gs_lock) ||
					   lockdep_is_held(&gs_processes_lock)) {
		if (process->id.pid == pid)
			return process;
	}
	return NULL;
}

/* Names the process of a task. Returns false if it is no more; the parent is valid until then. */
static bool gs_identify(struct task_struct *task, struct gs_identity *id)
{
	bool is_alive;

	rcu_read_lock();
	is_alive = pid_alive(task);
	if (is_alive) {
		id->pid = get_pid(task_tgid(task));
		id->start_ticks = gs_start_ticks(task->group_leader);
	}
	rcu_read_unlock();
	return is_alive;
}

/**
 * gs_process_alloc() - Make a record that is in no list and names no process.
 * @flags: How memory may be had.
 *
 * Return: The record or NULL.
 */
struct gs_process *gs_process_alloc(gfp_t flags)
{
	struct gs_process *process = kzalloc(sizeof(*process), flags);

	if (!process)
		return NULL;
	refcount_set(&process->refs, 1);
	spin_lock_init(&process->lock);
	process->refused_at = jiffies - HZ;
	INIT_LIST_HEAD(&process->clients);
	return process;
}

/**
 * gs_process_new() - Make a record of the process of a task, which is in no list.
 * @task: Any of its threads.
 *
 * Return: The record, or NULL if the process is no more or there is no memory.
 */
struct gs_process *gs_process_new(struct task_struct *task)
{
	struct gs_process *process = gs_process_alloc(GFP_KERNEL_ACCOUNT);

	if (!process)
		return NULL;
	if (gs_identify(task, &process->id))
		return process;
	kfree(process);
	return NULL;
}

/**
 * gs_process_discard() - Free a record that is in no list.
 * @process: A record from gs_process_new().
 */
void gs_process_discard(struct gs_process *process)
{
	put_pid(process->id.pid);
	kfree(process);
}

/**
 * gs_process_insert() - Let a process be found by its pid.
 * @process: A record that names one, which is not in the table.
 */
void gs_process_insert(struct gs_process *process)
{
	lockdep_assert_held(&gs_processes_lock);
	hash_add_rcu(gs_processes_by_pid, &process->hash, (unsigned long)process->id.pid);
}

/**
 * gs_process_link() - Add a process to the lists.
 * @process: A process that is in the table, with its tenant.
 */
void gs_process_link(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	list_add_tail(&process->tenant_node, &process->tenant->processes);
	process->tenant->processes_count++;
	list_add_tail(&process->node, &gs_processes);
}

/**
 * gs_process_drop() - Let a process not be found any more, and drop the reference of the table.
 * @process: A process without is_gone.
 */
void gs_process_drop(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	raw_spin_lock(&gs_processes_lock);
	WRITE_ONCE(process->is_gone, true);
	hash_del_rcu(&process->hash);
	raw_spin_unlock(&gs_processes_lock);
	gs_process_put(process);
}

static void gs_process_free(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	list_del(&process->tenant_node);
	process->tenant->processes_count--;
	list_del(&process->node);
	put_pid(process->id.pid);
	kfree_rcu(process, rcu);
}

static void gs_processes_free_work(struct work_struct *work)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	llist_for_each_entry_safe(process, next, llist_del_all(&gs_processes_to_free), marked)
		gs_process_free(process);
	mutex_unlock(&gs_lock);
}

static DECLARE_WORK(gs_processes_freeing, gs_processes_free_work);

/**
 * gs_process_free_later() - Free a process, to which nothing refers any more.
 * @process: The process. It leaves the lists in a work item, because the last reference may be
 *	dropped under a lock inside which gs_lock must not be taken.
 */
void gs_process_free_later(struct gs_process *process)
{
	llist_add(&process->marked, &gs_processes_to_free);
	schedule_work(&gs_processes_freeing);
}

/**
 * gs_processes_wait() - Wait until every process is freed to which nothing refers any more.
 */
void gs_processes_wait(void)
{
	flush_work(&gs_processes_freeing);
}

/* Reads what there is to be said of a process; what was read before stays once it is no more. */
static void gs_process_describe(struct gs_process *process)
{
	struct gpushare_event_opened *opened = &process->opened;
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(process->id.pid, PIDTYPE_TGID);
	if (task) {
		opened->ns_pid = task_tgid_nr_ns(task, task_active_pid_ns(task));
		opened->uid = from_kuid(&init_user_ns, task_uid(task));
		opened->cgroup_id = cgroup_id(task_dfl_cgroup(task));
		get_task_comm(opened->comm, task);
	}
	rcu_read_unlock();
}

/**
 * gs_process_send_opened() - Report that a process uses the driver.
 * @process: The process.
 * @flags: The flags of the event.
 */
void gs_process_send_opened(struct gs_process *process, u32 flags)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	gs_process_describe(process);
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_OPENED);
	event.flags = flags;
	event.opened = process->opened;
	strscpy(event.opened.tenant, process->tenant->name, sizeof(event.opened.tenant));
	gs_event_send(&event, &process->id);
}

/**
 * gs_process_send_closed() - Report the end of a process, if its beginning was reported.
 * @process: The process.
 * @by_exec: It has replaced itself.
 */
void gs_process_send_closed(struct gs_process *process, bool by_exec)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	if (!process->is_opened)
		return;
	WRITE_ONCE(process->is_opened, false);
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_CLOSED);
	event.flags = by_exec ? GPUSHARE_EVENT_BY_EXEC : 0;
	gs_event_send(&event, &process->id);
}

/**
 * gs_process_open_first() - Do what gs_process_open() does for a process that seems new.
 * @process: The calling process.
 */
void gs_process_open_first(struct gs_process *process)
{
	mutex_lock(&gs_lock);
	if (!process->is_opened) {
		gs_process_send_opened(process, 0);
		/* This pairs with gs_process_open(). */
		smp_store_release(&process->is_opened, true);
	}
	mutex_unlock(&gs_lock);
}

/**
 * gs_process_reports_refusal() - Is it time for another event about refusals of a process?
 * @process: The process that was refused something.
 * @repeats: Out: the number of refusals since the last event.
 *
 * There are ten such events a second for a process, so that a program that asks in a loop does not
 * push the events of other programs out of the ring.
 *
 * Return: True if it is.
 */
bool gs_process_reports_refusal(struct gs_process *process, u64 *repeats)
{
	bool is_time;

	spin_lock(&process->lock);
	is_time = !time_before(jiffies, process->refused_at + HZ / 10);
	if (is_time) {
		process->refused_at = jiffies;
		*repeats = process->refused_unreported;
		process->refused_unreported = 0;
	} else {
		process->refused_unreported++;
	}
	spin_unlock(&process->lock);
	return is_time;
}
