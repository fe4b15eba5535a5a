// SPDX-License-Identifier: GPL-2.0
/*
 * A process is found, or made, when it first makes a call of the driver that the filter looks at,
 * or when it is attached to a tenant. It ends when it exits or execs, which hook/exits.c marks.
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
#include "state/process.h"

#define GS_TICK_NS (NSEC_PER_SEC / USER_HZ)
#define GS_ANCESTORS_MAX 64 /* a bound for the walk: no programs nest so deep */

static DEFINE_HASHTABLE(gs_processes_by_pid, 10); /* changed under gs_lock, read under RCU */
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
				   lockdep_is_held(&gs_lock)) {
		if (process->id.pid == pid)
			return process;
	}
	return NULL;
}

/* The tenant of the nearest ancestor that was attached by name, or NULL if there is none. */
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
	process->id.pid = get_pid(task_tgid(task));
	process->id.start_ticks = div_u64(task->group_leader->start_boottime, GS_TICK_NS);
	process->tenant = gs_inherited_tenant(task) ?: gs_tenant_match(task);
	process->refused_at = jiffies - HZ;
	INIT_LIST_HEAD(&process->clients);
	list_add_tail(&process->tenant_node, &process->tenant->processes);
	list_add_tail(&process->node, &gs_processes);
	hash_add_rcu(gs_processes_by_pid, &process->hash, (unsigned long)process->id.pid);
	return process;
}

/**
 * gs_process_free() - Free a process, to which nothing refers any more.
 * @process: The process.
 */
void gs_process_free(struct gs_process *process)
{
	lockdep_assert_held(&gs_lock);
	list_del(&process->tenant_node);
	list_del(&process->node);
	put_pid(process->id.pid);
	kfree_rcu(process, rcu);
}

static void gs_process_send_closed(struct gs_process *process, bool by_exec)
{
	struct gpushare_event event gs_uninitialized;

	if (!process->is_opened)
		return;
	process->is_opened = false;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_CLOSED, &process->id);
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
 * Handles the marks of hook/exits.c. After exec a process stays in the tenant that it was attached
 * to; otherwise the rules look at what it has become. Its memory is not given back here, but by the
 * release of its files.
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
 * gs_processes_end_marked() - Handle every process that hook/exits.c has marked.
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
 * gs_process_of_current() - Find the calling process, or make it if it is new.
 *
 * Return: The process with one more reference, or NULL if there is no memory.
 */
struct gs_process *gs_process_of_current(void)
{
	struct gs_process *process;

	lockdep_assert_held(&gs_lock);
	process = gs_process_find_rcu(task_tgid(current));
	if (process) {
		gs_process_end(process); /* perhaps after an exec that was not handled yet */
		process = gs_process_find_rcu(task_tgid(current));
	}
	if (!process)
		process = gs_process_new(current);
	if (process)
		process->refs++;
	return process;
}

/**
 * gs_process_send_opened() - Report that a process uses the driver.
 * @process: The process.
 * @flags: The flags of the event.
 */
void gs_process_send_opened(struct gs_process *process, u32 flags)
{
	struct gpushare_event event gs_uninitialized;
	struct task_struct *task;

	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_OPENED, &process->id);
	event.flags = flags;
	rcu_read_lock();
	task = pid_task(process->id.pid, PIDTYPE_TGID);
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

/* Puts a process and the memory that it holds into another tenant, which is linked. */
static void gs_process_move(struct gs_process *process, struct gs_tenant *tenant)
{
	struct gpushare_event event gs_uninitialized;
	u32 i;

	if (process->tenant == tenant)
		return;
	for (i = 0; i < GPUSHARE_MAX_GPUS; i++) {
		process->tenant->memory[i] -= process->memory[i];
		tenant->memory[i] += process->memory[i];
	}
	process->tenant = tenant;
	list_move_tail(&process->tenant_node, &tenant->processes);
	if (!process->is_opened)
		return;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_MOVED, &process->id);
	strscpy(event.moved.tenant, kobject_name(&tenant->kobj), sizeof(event.moved.tenant));
	gs_event_send(&event);
}

/**
 * gs_processes_leave() - Put every process of a tenant into the default tenant.
 * @tenant: A tenant that is about to be removed. The processes of the default tenant stay in it.
 */
void gs_processes_leave(struct gs_tenant *tenant)
{
	struct gs_process *process, *next;

	lockdep_assert_held(&gs_lock);
	if (tenant == gs_tenant_default)
		return;
	list_for_each_entry_safe(process, next, &tenant->processes, tenant_node) {
		process->is_attached = false;
		gs_process_move(process, gs_tenant_default);
	}
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
	lockdep_assert_held(&gs_lock);
	if (time_before(jiffies, process->refused_at + HZ / 10)) {
		process->refused_unreported++;
		return false;
	}
	process->refused_at = jiffies;
	*repeats = process->refused_unreported;
	process->refused_unreported = 0;
	return true;
}

/* The owner of a tenant's files may attach its own processes, and those of no other user. */
static bool gs_may_attach(struct task_struct *task)
{
	return capable(CAP_SYS_ADMIN) || uid_eq(current_euid(), task_uid(task));
}

/**
 * gs_process_attach() - Put a process into a tenant by name, with all its later children.
 * @pid: The pid of any of its threads in the caller's pid namespace.
 * @tenant: The tenant.
 *
 * Return: 0, -ESRCH if there is no such process, -EPERM if it is another user's, -ENODEV if the
 * tenant is being removed, or -ENOMEM.
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
	 * The thread that ends the process first makes `live` 0, with a full barrier, and then
	 * looks into the hash (hook/exits.c). Either the end is seen here or it is marked there.
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
 * gs_processes_exit() - Forget all processes, when no client is left and there are no calls.
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
