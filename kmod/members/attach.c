// SPDX-License-Identifier: GPL-2.0
/* Processes that are put into a tenant by name. */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/sched/task.h>

#include "members/attach.h"
#include "members/current.h"
#include "members/fork.h"
#include "members/marks.h"
#include "members/moves.h"

/*
 * Who has opened the file may attach, whoever writes to it: the owner of a tenant's files its own
 * processes, and those of no other user.
 */
static bool gs_may_attach(const struct file *file, struct task_struct *task, bool is_admin)
{
	return is_admin || uid_eq(file->f_cred->euid, task_uid(task));
}

/*
 * May an owner of files take a process to a tenant? One that was put by name into another tree
 * stays there: otherwise who was given a tenant would not be held by any other one.
 */
static bool gs_may_leave(const struct gs_process *process, struct gs_tenant *tenant)
{
	return !process->is_attached || gs_tenant_top(process->tenant) == gs_tenant_top(tenant);
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
			   struct gs_tenant *tenant, bool is_admin)
{
	struct gs_process *process;

	lockdep_assert_held(&gs_lock);
	if (!tenant->is_linked) {
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
	if (!is_admin && !gs_may_leave(process, tenant))
		return -EPERM;
	gs_process_move(process, tenant, true);
	gs_tenant_changed(tenant, GPUSHARE_SETTING_PROCS);
	return 0;
}

/**
 * gs_process_attach() - Put a process into a tenant by name, with all its later children.
 * @file: The file that this was written to.
 * @pid: The pid of any of its threads in the caller's pid namespace.
 * @tenant: The tenant.
 *
 * Return: 0, -ESRCH if there is no such process, -EPERM if it is another user's or was put into
 * another tree by name, -ENODEV if the tenant is being made or removed, or -ENOMEM.
 */
int gs_process_attach(const struct file *file, pid_t pid, struct gs_tenant *tenant)
{
	bool is_admin = file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN);
	struct task_struct *task = gs_task_get(pid);
	struct gs_process *made;
	int err;

	if (!task)
		return -ESRCH;
	err = -EPERM;
	if (!gs_may_attach(file, task, is_admin))
		goto put_task;
	made = gs_process_new(task);
	err = pid_alive(task) ? -ENOMEM : -ESRCH;
	if (!made)
		goto put_task;
	mutex_lock(&gs_lock);
	err = gs_process_join(made, task, tenant, is_admin);
	mutex_unlock(&gs_lock);
put_task:
	put_task_struct(task);
	return err;
}
