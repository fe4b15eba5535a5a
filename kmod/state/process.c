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
#define GS_MOVES_AT_A_TIME 64 /* before others may have gs_lock */
#define GS_ANCESTORS_MAX 64   /* a bound for the walk: no programs nest so deep */

/*
 * A process that is forked is added to the table at once, in a tracepoint, where gs_lock cannot be
 * taken; the other lists follow. gs_processes_lock protects the table and what a fork reads of the
 * parent. It is taken inside gs_lock. A record is taken out of the table under both.
 */
static DEFINE_RAW_SPINLOCK(gs_processes_lock);
static DEFINE_HASHTABLE(gs_processes_by_pid, 10); /* read under RCU */
static LIST_HEAD(gs_processes_forked);            /* gs_process.pending, under gs_processes_lock */
static LLIST_HEAD(gs_processes_marked);
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
		id->start_ticks = div_u64(task->group_leader->start_boottime, GS_TICK_NS);
	}
	rcu_read_unlock();
	return is_alive;
}

/*
 * The tenant of the nearest ancestor that was attached by name, or NULL if there is none. This is
 * for processes that were forked before the module came, or when there was no memory.
 */
static struct gs_tenant *gs_inherited_tenant(struct task_struct *task)
{
	struct gs_tenant *tenant = NULL;
	unsigned int depth;

	rcu_read_lock();
	for (depth = 0; depth < GS_ANCESTORS_MAX && !tenant && pid_alive(task); depth++) {
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

static void gs_process_init(struct gs_process *process)
{
	refcount_set(&process->refs, 1);
	process->refused_at = jiffies - HZ;
	INIT_LIST_HEAD(&process->clients);
}

/* Makes a record of the process of a task, which is in no list. Returns NULL if it is no more. */
static struct gs_process *gs_process_new(struct task_struct *task)
{
	struct gs_process *process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);

	if (!process)
		return NULL;
	gs_process_init(process);
	if (gs_identify(task, &process->id))
		return process;
	kfree(process);
	return NULL;
}

static void gs_process_discard(struct gs_process *process)
{
	put_pid(process->id.pid);
	kfree(process);
}

static void gs_process_link(struct gs_process *process)
{
	list_add_tail(&process->tenant_node, &process->tenant->processes);
	process->tenant->processes_count++;
	list_add_tail(&process->node, &gs_processes);
}

/* Adds a record from gs_process_new(), unless there is one by now, which is then returned. */
static struct gs_process *gs_process_add(struct gs_process *process, struct task_struct *task)
{
	struct gs_tenant *tenant = gs_inherited_tenant(task);
	struct gs_process *known;

	lockdep_assert_held(&gs_lock);
	process->is_attached = tenant;
	process->tenant = tenant ?: gs_tenant_match(task);
	raw_spin_lock(&gs_processes_lock);
	known = gs_process_find_rcu(process->id.pid);
	if (!known)
		hash_add_rcu(gs_processes_by_pid, &process->hash, (unsigned long)process->id.pid);
	raw_spin_unlock(&gs_processes_lock);
	if (known) {
		gs_process_discard(process);
		return known;
	}
	gs_process_link(process);
	return process;
}

/* Puts the processes that were forked into the lists. Returns false if there were none. */
static bool gs_processes_link_forked(void)
{
	struct gs_process *process;
	bool is_any = false;

	lockdep_assert_held(&gs_lock);
	for (;;) {
		raw_spin_lock(&gs_processes_lock);
		process =
			list_first_entry_or_null(&gs_processes_forked, struct gs_process, pending);
		if (process)
			list_del_init(&process->pending);
		raw_spin_unlock(&gs_processes_lock);
		if (!process)
			return is_any;
		gs_process_link(process);
		is_any = true;
	}
}

/**
 * gs_process_forked() - Let a new process inherit the tenant that its parent was attached to.
 * @parent: The process that forks.
 * @child: The new process, which has not run yet.
 *
 * A kernel with PREEMPT_RT has no memory to give in a tracepoint. There the child inherits when it
 * first uses the driver, if its ancestors still live.
 *
 * Return: True if gs_processes_tidy() is to be called soon.
 */
bool gs_process_forked(struct task_struct *parent, struct task_struct *child)
{
	struct gs_process *process, *heir = NULL;
	bool is_heir = false;

	if (child->tgid == parent->tgid || IS_ENABLED(CONFIG_PREEMPT_RT))
		return false;
	rcu_read_lock();
	process = gs_process_find_rcu(task_tgid(parent));
	if (process && READ_ONCE(process->is_attached))
		heir = kzalloc(sizeof(*heir), GFP_ATOMIC | __GFP_NOWARN);
	if (!heir)
		goto unlock;
	gs_process_init(heir);
	heir->is_attached = true;
	heir->id.pid = get_pid(task_tgid(child));
	heir->id.start_ticks = div_u64(child->start_boottime, GS_TICK_NS);
	raw_spin_lock(&gs_processes_lock);
	is_heir = READ_ONCE(process->is_attached) && !process->is_gone;
	if (is_heir) {
		heir->tenant = process->tenant;
		hash_add_rcu(gs_processes_by_pid, &heir->hash, (unsigned long)heir->id.pid);
		list_add_tail(&heir->pending, &gs_processes_forked);
	}
	raw_spin_unlock(&gs_processes_lock);
	if (!is_heir)
		gs_process_discard(heir);
unlock:
	rcu_read_unlock();
	return is_heir;
}

/**
 * gs_process_mark() - Note what a process has done, if it is known.
 * @task: Any of its threads.
 * @mark: One of GS_MARK_*.
 *
 * Return: True if gs_processes_tidy() is to be called soon.
 */
bool gs_process_mark(struct task_struct *task, int mark)
{
	struct gs_process *process;

	rcu_read_lock();
	process = gs_process_find_rcu(task_tgid(task));
	if (process) {
		set_bit(mark, &process->marks);
		if (!atomic_xchg(&process->is_marked, 1)) {
			if (refcount_inc_not_zero(&process->refs))
				llist_add(&process->marked, &gs_processes_marked);
		}
	}
	rcu_read_unlock();
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
	process->tenant->processes_count--;
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
	raw_spin_lock(&gs_processes_lock);
	process->is_gone = true;
	hash_del_rcu(&process->hash);
	raw_spin_unlock(&gs_processes_lock);
	gs_process_put(process);
}

/**
 * gs_process_lost_client() - Report the end of a process if this was the last client it had left.
 * @process: The process of a client that is gone, of which the caller holds a reference.
 *
 * After exec a process stays in the tenant that it was attached to; otherwise the rules look at
 * what it has become.
 */
void gs_process_lost_client(struct gs_process *process)
{
	enum gs_closing closing = process->closing;

	lockdep_assert_held(&gs_lock);
	if (!closing || !list_empty(&process->clients))
		return;
	process->closing = GS_CLOSING_NOT;
	gs_process_send_closed(process, closing == GS_CLOSING_EXEC);
	if (!process->is_gone && !process->is_attached && !test_bit(GS_MARK_EXIT, &process->marks))
		gs_process_drop(process);
}

static void gs_process_close(struct gs_process *process, enum gs_closing closing)
{
	process->closing = closing;
	gs_process_lost_client(process);
	if (closing == GS_CLOSING_EXIT && !process->is_gone)
		gs_process_drop(process);
}

static void gs_process_move(struct gs_process *process, struct gs_tenant *tenant);

static void gs_process_match_again(struct gs_process *process)
{
	struct task_struct *task;

	if (process->is_attached)
		return;
	task = get_pid_task(process->id.pid, PIDTYPE_TGID);
	if (!task)
		return;
	gs_process_move(process, gs_tenant_match(task));
	put_task_struct(task);
}

/*
 * Handles the marks of a process. Its memory is not given back here, but when the driver has
 * released its files. Until then it has not ended: another process may have them open, and its
 * work goes on.
 */
static void gs_process_handle_marks(struct gs_process *process)
{
	if (process->is_gone)
		return;
	refcount_inc(&process->refs);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_EXEC, &process->marks))
		gs_process_close(process, GS_CLOSING_EXEC);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_CGROUP, &process->marks))
		gs_process_match_again(process);
	if (!process->is_gone && test_and_clear_bit(GS_MARK_EXIT, &process->marks))
		gs_process_close(process, GS_CLOSING_EXIT);
	gs_process_put(process);
}

/**
 * gs_processes_tidy() - Handle every process that was forked or marked in a tracepoint.
 */
void gs_processes_tidy(void)
{
	struct gs_process *process, *next;

	mutex_lock(&gs_lock);
	gs_processes_link_forked();
	mutex_unlock(&gs_lock);
	llist_for_each_entry_safe(process, next, llist_del_all(&gs_processes_marked), marked) {
		mutex_lock(&gs_lock);
		gs_processes_link_forked();         /* it may be one of them */
		atomic_set(&process->is_marked, 0); /* a mark from here on is for another time */
		smp_mb__after_atomic();
		gs_process_handle_marks(process);
		gs_process_put(process);
		mutex_unlock(&gs_lock);
		cond_resched();
	}
}

/* The record of a process with its marks handled, or NULL if it is not known. */
static struct gs_process *gs_process_find(const struct pid *pid)
{
	struct gs_process *process = gs_process_find_rcu(pid);

	lockdep_assert_held(&gs_lock);
	if (!process)
		return NULL;
	gs_processes_link_forked();
	gs_process_handle_marks(process);
	return gs_process_find_rcu(pid);
}

/**
 * gs_process_of_current() - Find the calling process, or make it if it is new.
 *
 * Return: The process with one more reference, or NULL if there is no memory. gs_lock is let go of
 * meanwhile if it is new.
 */
struct gs_process *gs_process_of_current(void)
{
	struct gs_process *process, *made;

	process = gs_process_find(task_tgid(current));
	if (!process) {
		mutex_unlock(&gs_lock);
		made = gs_process_new(current);
		mutex_lock(&gs_lock);
		process = made ? gs_process_add(made, current) : NULL;
	}
	if (process)
		refcount_inc(&process->refs);
	return process;
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

	gs_process_describe(process);
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_OPENED, &process->id);
	event.flags = flags;
	event.opened = process->opened;
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
		gs_tenant_uses_memory(process->tenant, i, -process->memory[i]);
		gs_tenant_uses_memory(tenant, i, process->memory[i]);
	}
	process->tenant->contexts -= process->contexts;
	tenant->contexts += process->contexts;
	process->tenant->processes_count--;
	tenant->processes_count++;
	raw_spin_lock(&gs_processes_lock);
	process->tenant = tenant;
	raw_spin_unlock(&gs_processes_lock);
	list_move_tail(&process->tenant_node, &tenant->processes);
	if (!process->is_opened)
		return;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_MOVED, &process->id);
	strscpy(event.moved.tenant, kobject_name(&tenant->kobj), sizeof(event.moved.tenant));
	gs_event_send(&event);
}

/**
 * gs_processes_leave() - Put every process of a tenant into the default tenant.
 * @tenant: A tenant that is not linked any more. The processes of the default tenant stay in it.
 *
 * gs_lock is let go of meanwhile if there are many.
 */
void gs_processes_leave(struct gs_tenant *tenant)
{
	struct gs_process *process;
	unsigned int moved = 0;

	lockdep_assert_held(&gs_lock);
	if (tenant == gs_tenant_default)
		return;
	do { /* Until none was forked meanwhile whose parent had not moved yet. */
		while (!list_empty(&tenant->processes)) {
			process = list_first_entry(&tenant->processes, struct gs_process,
						   tenant_node);
			process->is_attached = false;
			gs_process_move(process, gs_tenant_default);
			if (++moved % GS_MOVES_AT_A_TIME == 0)
				gs_lock_rest();
		}
	} while (gs_processes_link_forked());
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

/*
 * Who has opened the file may attach, whoever writes to it: the owner of a tenant's files its own
 * processes, and those of no other user.
 */
static bool gs_may_attach(const struct file *file, struct task_struct *task)
{
	return file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN) ||
	       uid_eq(file->f_cred->euid, task_uid(task));
}

static struct task_struct *gs_task_get(pid_t pid)
{
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(find_vpid(pid), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}

static int gs_process_join(struct gs_process *made, struct task_struct *task,
			   struct gs_tenant *tenant)
{
	struct gs_process *process;

	lockdep_assert_held(&gs_lock);
	if (tenant->is_removed) {
		gs_process_discard(made);
		return -ENODEV;
	}
	process = gs_process_add(made, task);
	gs_processes_link_forked();
	/*
	 * The thread that ends the process first makes `live` 0, with a full barrier, and then
	 * looks into the hash (hook/exits.c). Either the end is seen here or it is marked there.
	 */
	smp_mb();
	if (!atomic_read(&task->signal->live)) {
		set_bit(GS_MARK_EXIT, &process->marks);
		gs_process_handle_marks(process);
		return -ESRCH;
	}
	WRITE_ONCE(process->is_attached, true);
	gs_process_move(process, tenant);
	gs_tenant_changed(tenant, GPUSHARE_SETTING_PROCS);
	return 0;
}

/**
 * gs_process_attach() - Put a process into a tenant by name, with all its later children.
 * @file: The file that this was written to.
 * @pid: The pid of any of its threads in the caller's pid namespace.
 * @tenant: The tenant.
 *
 * Return: 0, -ESRCH if there is no such process, -EPERM if it is another user's, -ENODEV if the
 * tenant is being removed, or -ENOMEM.
 */
int gs_process_attach(const struct file *file, pid_t pid, struct gs_tenant *tenant)
{
	struct task_struct *task = gs_task_get(pid);
	struct gs_process *made;
	int err;

	if (!task)
		return -ESRCH;
	err = -EPERM;
	if (!gs_may_attach(file, task))
		goto put_task;
	made = gs_process_new(task);
	err = pid_alive(task) ? -ENOMEM : -ESRCH;
	if (!made)
		goto put_task;
	mutex_lock(&gs_lock);
	err = gs_process_join(made, task, tenant);
	mutex_unlock(&gs_lock);
put_task:
	put_task_struct(task);
	return err;
}

/**
 * gs_processes_exit() - Forget all processes, when no client is left and there are no calls.
 */
void gs_processes_exit(void)
{
	struct gs_process *process, *next;

	gs_processes_tidy();
	mutex_lock(&gs_lock);
	list_for_each_entry_safe(process, next, &gs_processes, node) {
		if (!process->is_gone)
			gs_process_drop(process);
	}
	WARN_ON(!list_empty(&gs_processes));
	mutex_unlock(&gs_lock);
}
