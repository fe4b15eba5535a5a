// SPDX-License-Identifier: GPL-2.0
/*
 * The way of an ioctl through the filter, up to the point where its kind decides. Ordered by cost:
 * number and size of the command, the control inside, the caller; what is of no interest goes on to
 * the driver at once. Runs in the caller's context, may sleep, and holds no lock while the driver
 * works.
 */
#include <linux/file.h>
#include <linux/ioctl.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>

#include <asm/syscall.h>

#include "agent.h"
#include "filter.h"
#include "pin.h"
#include "refusals.h"

/* The client that a handle means, with a reference; with gs_lock held. */
static struct gs_client *gs_call_client(const struct gs_call *call, u32 handle)
{
	struct gs_client *client = gs_client_find(handle, call->file, call->process);

	if (client)
		client->refs++;
	return client;
}

static void gs_call_put_clients(struct gs_call *call)
{
	mutex_lock(&gs_lock);
	if (call->client)
		gs_client_put(call->client);
	if (call->source)
		gs_client_put(call->source);
	mutex_unlock(&gs_lock);
}

static void gs_call_leave(struct gs_call *call)
{
	if (call->client)
		mutex_unlock(&call->client->order);
	if (call->source)
		mutex_unlock(&call->source->order);
	gs_call_put_clients(call);
}

/*
 * Waits for the turn of the client, and of the source of a duplicate; of two the one at the lower
 * address first, everywhere. 0, or -EINTR when the caller was killed meanwhile.
 */
static int gs_call_enter(struct gs_call *call)
{
	struct gs_client *first, *second;

	mutex_lock(&gs_lock);
	call->client = gs_call_client(call, call->rm.client);
	call->source = NULL;
	if (call->rm.kind == RM_CALL_DUP && call->rm.source_client != call->rm.client)
		call->source = gs_call_client(call, call->rm.source_client);
	mutex_unlock(&gs_lock);
	first = call->client ?: call->source;
	second = call->client ? call->source : NULL;
	if (second && second < first)
		swap(first, second);
	if (first && mutex_lock_killable(&first->order))
		goto put_clients;
	if (second && mutex_lock_killable_nested(&second->order, SINGLE_DEPTH_NESTING))
		goto unlock_first;
	return 0;

unlock_first:
	mutex_unlock(&first->order);
put_clients:
	gs_call_put_clients(call);
	return -EINTR;
}

/**
 * gs_call_driver() - let the driver do it, and learn what it said
 * @call: as it was made
 * @answer: out
 *
 * A pinned call (pin.c) was answered in our memory, and the answer is handed on to the caller here.
 * Where calls cannot be pinned the answer is read from the caller's memory. In doubt, after -EFAULT
 * and when RM was never entered, an object exists and nothing is gone.
 */
void gs_call_driver(struct gs_call *call, struct gs_answer *answer)
{
	bool is_pinning = READ_ONCE(gs_pin_is_attached);
	unsigned long left;

	gs_pin_begin(call);
	answer->ret = call->driver(call->file, call->cmd, call->arg);
	gs_pin_end(call);
	answer->is_made = answer->ret == -EFAULT && !is_pinning;
	answer->is_done = false;
	answer->status = ~0U;
	answer->rm = call->rm;
	if (call->is_pinned) {
		left = copy_to_user(call->user, call->bytes, call->size);
		if (left)
			answer->ret = -EFAULT;
	} else {
		if (answer->ret < 0)
			return;
		left = copy_from_user(call->bytes, call->user, call->size);
		if (left) {
			answer->is_made = true;
			return;
		}
	}
	rm_call_parse(call->nr, call->size, call->bytes, &answer->rm);
	answer->status = *(u32 *)(call->bytes + call->rm.status_offset);
	answer->is_made = answer->status == RM_OK;
	answer->is_done = answer->is_made && (call->is_pinned || !is_pinning);
}

/**
 * gs_call_refuse() - answer instead of the driver
 * @call: that the driver will not see
 * @status: RM status for the argument
 *
 * Return: what the ioctl returns, 0 as the driver would.
 */
long gs_call_refuse(const struct gs_call *call, u32 status)
{
	return put_user(status, (u32 __user *)(call->user + call->rm.status_offset));
}

/**
 * gs_call_read_params() - copy what is of interest of the parameters
 * @call: of kind ALLOC or CONTROL; may be called again after the driver has answered
 *
 * Return: 0, or -EFAULT.
 */
int gs_call_read_params(struct gs_call *call)
{
	u32 bytes = rm_params_wanted(&call->rm);

	memset(&call->params, 0, sizeof(call->params));
	if (bytes && copy_from_user(&call->params, u64_to_user_ptr(call->rm.p_params), bytes))
		return -EFAULT;
	return 0;
}

/**
 * gs_call_fd() - the descriptor that the caller named
 * @call: of the running system call
 *
 * Return: the descriptor, or -1 when it does not lead to the file any more.
 */
s32 gs_call_fd(const struct gs_call *call)
{
	unsigned long args[6];
	struct file *file;

	syscall_get_arguments(current, current_pt_regs(), args);
	if (args[0] > INT_MAX)
		return -1;
	file = fget_raw(args[0]);
	if (file)
		fput(file);
	return file == call->file ? (s32)args[0] : -1;
}

/**
 * gs_refusal_is_reported() - is it time for another event about refusals of a process?
 * @process: refused something
 * @repeats: out: refusals since the last event
 *
 * Ten events a second, so that one who asks in a loop does not push out what others do.
 *
 * Return: true when it is.
 */
bool gs_refusal_is_reported(struct gs_process *process, u64 *repeats)
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

/* What makes or frees something of a client, in that client's order. */
static long gs_filter_ordered(struct gs_call *call)
{
	long ret = gs_call_enter(call);

	if (ret)
		return ret;
	if (call->rm.kind == RM_CALL_ALLOC)
		ret = gs_filter_alloc(call);
	else if (call->rm.kind == RM_CALL_DUP)
		ret = gs_filter_dup(call);
	else
		ret = gs_filter_free(call);
	gs_call_leave(call);
	return ret;
}

static long gs_filter_call(struct gs_call *call)
{
	if (call->rm.kind == RM_CALL_CONTROL)
		return gs_filter_control(call);
	if (call->rm.kind == RM_CALL_ALLOC && rm_is_root_class(call->rm.class_id))
		return gs_filter_client(call);
	return gs_filter_ordered(call);
}

/**
 * gs_rm_is_of_interest() - is a command looked at, now that it is known what it asks for?
 * @rm: it
 *
 * Return: false when it goes straight to the driver.
 */
bool gs_rm_is_of_interest(const struct rm_call *rm)
{
	switch (rm->kind) {
	case RM_CALL_OTHER:
		return false;
	case RM_CALL_CONTROL:
		return gs_rule_of(rm->cmd) != GS_RULE_NONE;
	case RM_CALL_ALLOC:
		return rm_is_tracked_class(rm->class_id);
	default:
		return true;
	}
}

/* Apart from gs_filter_ioctl(), so that what is of no interest does not pay for this frame. */
static noinline long gs_filter_copied(struct gs_call *call)
{
	long ret;

	memset(call->bytes, 0, sizeof(call->bytes));
	if (copy_from_user(call->bytes, call->user, call->size))
		return -EFAULT;
	rm_call_parse(call->nr, call->size, call->bytes, &call->rm);
	if (!gs_rm_is_of_interest(&call->rm) || gs_agent_includes_current())
		return call->driver(call->file, call->cmd, call->arg);
	mutex_lock(&gs_lock);
	call->process = gs_process_of_current();
	mutex_unlock(&gs_lock);
	if (!call->process)
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	ret = gs_filter_call(call);
	mutex_lock(&gs_lock);
	gs_process_put(call->process);
	mutex_unlock(&gs_lock);
	return ret;
}

/* A control of no interest is told from its number alone: there are hundreds for one of interest. */
static __always_inline int gs_control_passes(const u8 __user *user)
{
	u32 cmd;

	if (get_user(cmd, (const u32 __user *)(user + offsetof(struct rm_nvos54, cmd))))
		return -EFAULT;
	return gs_rule_of(cmd) == GS_RULE_NONE;
}

static noinline long gs_filter_looked_at(struct file *file, unsigned int cmd, unsigned long arg,
					 gs_ioctl_fn driver, u32 nr, u32 size, u8 __user *user)
{
	struct gs_call call;

	call.driver = driver;
	call.file = file;
	call.cmd = cmd;
	call.arg = arg;
	call.nr = nr;
	call.size = size;
	call.user = user;
	return gs_filter_copied(&call);
}

static noinline long gs_filter_xfer(struct file *file, unsigned int cmd, unsigned long arg,
				    gs_ioctl_fn driver)
{
	struct rm_xfer xfer;

	if (_IOC_SIZE(cmd) != sizeof(xfer))
		return driver(file, cmd, arg);
	if (copy_from_user(&xfer, (const void __user *)arg, sizeof(xfer)))
		return -EFAULT;
	if (rm_call_kind(xfer.cmd, xfer.size) == RM_CALL_OTHER)
		return driver(file, cmd, arg);
	return gs_filter_looked_at(file, cmd, arg, driver, xfer.cmd, xfer.size,
				   u64_to_user_ptr(xfer.ptr));
}

/**
 * gs_filter_ioctl() - stands for the driver's ioctl
 * @file: as the driver gets it
 * @cmd: see @file
 * @arg: see @file
 * @driver: the driver's own
 *
 * Return: what the driver returns, or 0 with an RM status in the argument for what is refused, or
 * -EFAULT for an argument that cannot be read.
 */
long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, gs_ioctl_fn driver)
{
	u32 nr = _IOC_NR(cmd), size = _IOC_SIZE(cmd);
	u8 __user *user = (u8 __user *)arg;
	int passes;

	if (nr == RM_ESC_XFER)
		return gs_filter_xfer(file, cmd, arg, driver);
	switch (rm_call_kind(nr, size)) {
	case RM_CALL_OTHER:
		return driver(file, cmd, arg);
	case RM_CALL_CONTROL:
		passes = gs_control_passes(user);
		if (passes < 0)
			return passes;
		if (passes)
			return driver(file, cmd, arg);
		fallthrough;
	default:
		return gs_filter_looked_at(file, cmd, arg, driver, nr, size, user);
	}
}
