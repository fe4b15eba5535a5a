// SPDX-License-Identifier: GPL-2.0
/*
 * The processes: found or made when they first do something with the driver that is looked at, or
 * when they are attached; over when they exit or exec (exits.c marks them).
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "compat/version.h"
#include "state/state.h"
#include "state/stream.h"

#define GS_TICK_NS (NSEC_PER_SEC / USER_HZ)
#define GS_ANCESTORS_MAX 64 /* a bound for the walk, not a rule: nobody nests so deep */

static DEFINE_HASHTABLE(gs_processes_by_pid, 10); /* changed under gs_lock, read under RCU */
static LIST_HEAD(gs_processes);

/**
 * gs_process_find_rcu() - the process of a thread group
 * @pid: of the thread group
 *
 * Needs gs_lock or rcu_read_lock().
 *
 * Return: the process or NULL.
 */
struct gs_process *gs_process_find_rcu(const struct pid *pid)
{
	struct gs_process *process;

	hash_for_each_possible_rcu(gs_processes_by_pid, process, hash, (unsigned long)pid,
				   lockdep_is_held(&gs_lock)) {
		if (process->pid == pid)
			return process;
	}
	return NULL;
}

/* The tenant of the nearest ancestor that was attached by name; NULL when there is none. */
static struct gs_tenant *gs_inherited_tenant(struct task_struct *task)
{
	struct gs_tenant *tenant = NULL;
	unsigned int depth;

	rcu_read_lock();
	for (depth = 0; depth < GS_ANCESTORS_MAX && !tenant; depth++) {
		struct gs_process *process = gs_process_find_rcu(task_tgid(task));

		if (process && process->is_attached)
			tenant = process->tenant;
		if (task->pid <= 1)
			break;
		task = rcu_dereference(task->real_parent);
	}
	rcu_read_unlock();
	return tenant;
}

static struct gs_process *gs_process_new(struct task_struct *task)
{
	struct gs_process *process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);

	if (!process)
		return NULL;
	process->refs = 1;
	process->pid = get_pid(task_tgid(task));
	process->start_ticks = div_u64(task->group_leader->start_boottime, GS_TICK_NS);
	process->tenant = gs_inherited_tenant(task) ?: gs_tenant_match(task);
	process->refused_at = jiffies - HZ;
	INIT_LIST_HEAD(&process->clients);
	list_add_tail(&process->tenant_node, &process->tenant->processes);
	list_add_tail(&process->node, &gs_processes);
	hash_add_rcu(gs_processes_by_pid, &process->hash, (unsigned long)process->pid);
	return process;
}

/**
 * gs_process_free() - nobody refers to it any more
 * @process: to be freed
 */
void gs_process_free(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	list_del(&process->tenant_node);
	list_del(&process->node);
	put_pid(process->pid);
	kfree_rcu(process, rcu);
}

static void gs_process_send_closed(struct gs_process *process, bool by_exec)
{
	struct gpushare_event event gs_uninitialized;

	if (!process->is_opened)
		return;
	process->is_opened = false;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_CLOSED, process);
	event.flags = by_exec ? GPUSHARE_EVENT_BY_EXEC : 0;
	gs_event_send(&event);
}

static void gs_process_drop(struct gs_process *process)
{
	process->is_gone = true;
	hash_del_rcu(&process->hash);
	gs_process_put(process);
}

/*
 * Handles the marks of exits.c. After exec it stays where it was attached, and a rule looks at what
 * it has become. Its memory is given back by the release of its files, not here.
 */
static void gs_process_end(struct gs_process *process)
{
	if (process->is_gone)
		return;
	if (test_and_clear_bit(GS_ENDING_EXEC, &process->ending)) {
		gs_process_send_closed(process, true);
		if (!process->is_attached && list_empty(&process->clients) &&
		    !test_bit(GS_ENDING_EXIT, &process->ending)) {
			gs_process_drop(process);
			return;
		}
	}
	if (test_and_clear_bit(GS_ENDING_EXIT, &process->ending)) {
		gs_process_send_closed(process, false);
		gs_process_drop(process);
	}
}

/**
 * gs_processes_end_marked() - handle every process that exits.c has marked
 */
void gs_processes_end_marked(void)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	list_for_each_entry_safe(process, next, &gs_processes, node)
		gs_process_end(process);
	mutex_unlock(&gs_lock);
}

/**
 * gs_process_of_current() - the calling process, made if it is new
 *
 * Return: the process with one more reference, or NULL when there is no memory.
 */
struct gs_process *gs_process_of_current(void)
{
	struct gs_process *process;

	lockdep_assert_held(&gs_lock);
	process = gs_process_find_rcu(task_tgid(current));
	if (process) {
		gs_process_end(process); /* an exec whose mark has not been handled yet */
		process = gs_process_find_rcu(task_tgid(current));
	}
	if (!process)
		process = gs_process_new(current);
	if (process)
		process->refs++;
	return process;
}

/**
 * gs_process_send_opened() - report that a process uses the driver
 * @process: it
 * @flags: of the event
 */
void gs_process_send_opened(struct gs_process *process, u32 flags)
{
	struct gpushare_event event gs_uninitialized;
	struct task_struct *task;

	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_OPENED, process);
	event.flags = flags;
	rcu_read_lock();
	task = pid_task(process->pid, PIDTYPE_TGID);
	if (task) {
		event.opened.ns_pid = task_tgid_nr_ns(task, task_active_pid_ns(task));
		event.opened.uid = from_kuid(&init_user_ns, task_uid(task));
		event.opened.cgroup_id = cgroup_id(task_dfl_cgroup(task));
		get_task_comm(event.opened.comm, task);
	}
	rcu_read_unlock();
	strscpy(event.opened.tenant, kobject_name(&process->tenant->kobj),
		sizeof(event.opened.tenant));
	gs_event_send(&event);
}

/**
 * gs_process_move() - put a process and the memory it holds into another tenant
 * @process: any
 * @tenant: in the list
 */
void gs_process_move(struct gs_process *process, struct gs_tenant *tenant)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	if (process->tenant == tenant)
		return;
	gs_memory_move(process, tenant);
	process->tenant = tenant;
	list_move_tail(&process->tenant_node, &tenant->processes);
	if (!process->is_opened)
		return;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_MOVED, process);
	strscpy(event.moved.tenant, kobject_name(&tenant->kobj), sizeof(event.moved.tenant));
	gs_event_send(&event);
}

/* The owner of a tenant's files may bring its own processes, nobody else's. */
static bool gs_may_attach(struct task_struct *task)
{
	return capable(CAP_SYS_ADMIN) || uid_eq(current_euid(), task_uid(task));
}

/**
 * gs_process_attach() - put a process into a tenant by name, with all its later children
 * @pid: in the caller's pid namespace, of any of its threads
 * @tenant: where to
 *
 * Return: 0, -ESRCH for no such process, -EPERM for someone else's, -ENODEV when the tenant is
 * being removed, or -ENOMEM.
 */
int gs_process_attach(pid_t pid, struct gs_tenant *tenant)
{
	struct gs_process *process;
	struct task_struct *task;
	int err = 0;

	rcu_read_lock();
	task = pid_task(find_vpid(pid), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return -ESRCH;
	if (!gs_may_attach(task)) {
		put_task_struct(task);
		return -EPERM;
	}
	mutex_lock(&gs_lock);
	if (tenant->is_removed) {
		err = -ENODEV;
		goto unlock;
	}
	process = gs_process_find_rcu(task_tgid(task));
	if (!process)
		process = gs_process_new(task);
	if (!process) {
		err = -ENOMEM;
		goto unlock;
	}
	/*
	 * Whoever ends the process first makes `live` 0, with a full barrier, and then looks into
	 * the hash (exits.c): either it is seen here, or the mark will be made there.
	 */
	smp_mb();
	if (!atomic_read(&task->signal->live)) {
		set_bit(GS_ENDING_EXIT, &process->ending);
		gs_process_end(process);
		err = -ESRCH;
		goto unlock;
	}
	process->is_attached = true;
	gs_process_move(process, tenant);
	gs_tenant_changed(tenant, GPUSHARE_SETTING_PROCS);
unlock:
	mutex_unlock(&gs_lock);
	put_task_struct(task);
	return err;
}

/**
 * gs_processes_replay() - report every living process that uses the driver, and all it has
 */
void gs_processes_replay(void)
{
	struct gs_process *process;
	struct gs_client *client;

	lockdep_assert_held(&gs_lock);
	list_for_each_entry(process, &gs_processes, node) {
		if (process->is_gone || !process->is_opened)
			continue;
		gs_process_send_opened(process, GPUSHARE_EVENT_REPLAYED);
		list_for_each_entry(client, &process->clients, process_node)
			gs_client_replay(client);
	}
}

/**
 * gs_processes_exit() - forget all; no client is left, and nobody calls any more
 */
void gs_processes_exit(void)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	list_for_each_entry_safe(process, next, &gs_processes, node) {
		if (!process->is_gone)
			gs_process_drop(process);
	}
	WARN_ON(!list_empty(&gs_processes));
	mutex_unlock(&gs_lock);
}
