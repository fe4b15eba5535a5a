// SPDX-License-Identifier: GPL-2.0
/*
 * The way of an ioctl through the filter, up to the point where its kind decides. Runs in the
 * caller's context, may sleep, and holds no lock while the driver works but its client's order.
 */
#include <linux/file.h>
#include <linux/ioctl.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>

#include <asm/syscall.h>

#include "agent.h"
#include "divert.h"
#include "filter.h"
#include "interest.h"
#include "pin.h"
#include "user.h"
#include "version.h"

static long gs_call_original(const struct gs_call *call)
{
	return gs_divert_original((unsigned long)call->file, call->cmd, call->arg, call->driver);
}

/**
 * gs_call_driver() - let the driver do it, and learn what it said
 * @call: as it was made
 * @answer: out
 *
 * RM answers in our memory, and the answer is handed on to the caller here. The driver may refuse a
 * call before RM comes to it, and then leaves the status that the program has written there: so one
 * is put there that RM does not have.
 */
void gs_call_driver(struct gs_call *call, struct gs_answer *answer)
{
	u32 *status = (u32 *)(call->bytes + call->rm.status_offset), before = *status;

	*status = GS_STATUS_NONE;
	gs_pin_begin(call);
	answer->ret = gs_call_original(call);
	gs_pin_end(call);
	answer->status = *status;
	answer->is_done = *status == RM_OK;
	if (!call->is_pinned)
		return;
	if (*status == GS_STATUS_NONE)
		*status = before;
	if (gs_user_write(call->user, call->bytes, call->size))
		answer->ret = -EFAULT;
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

/* Bytes of the argument behind what the caller gave are zero, as far as they are parsed. */
static int gs_call_copy(struct gs_call *call)
{
	if (call->size < RM_ARG_BYTES)
		memset(call->bytes + call->size, 0, RM_ARG_BYTES - call->size);
	if (gs_user_read(call->bytes, call->user, call->size))
		return -EFAULT;
	rm_call_parse(call->nr, call->size, call->bytes, &call->rm);
	return 0;
}

static int gs_call_copy_params(struct gs_call *call)
{
	call->params_bytes = rm_params_wanted(&call->rm);
	if (call->params_bytes < sizeof(call->params))
		memset(&call->params, 0, sizeof(call->params));
	if (!call->params_bytes)
		return 0;
	return gs_user_read(&call->params, u64_to_user_ptr(call->rm.p_params), call->params_bytes);
}

static long gs_filter_call(struct gs_call *call)
{
	struct gs_answer answer gs_uninitialized;

	switch (call->rm.kind) {
	case RM_CALL_CONTROL:
		return gs_filter_control(call);
	case RM_CALL_ALLOC:
		return rm_is_root_class(call->rm.class_id) ? gs_filter_client(call) :
							     gs_filter_alloc(call);
	case RM_CALL_DUP:
		return gs_filter_dup(call);
	case RM_CALL_FREE:
		return gs_filter_free(call);
	default: /* memory that is not remembered: done as it was looked at */
		gs_call_driver(call, &answer);
		return answer.ret;
	}
}

static bool gs_call_is_of_interest(const struct gs_call *call)
{
	u32 offset;

	switch (gs_interest_in(call->nr, call->size, &offset)) {
	case GS_INTEREST_NONE:
		return false;
	case GS_INTEREST_BY_WORD:
		return gs_word_is_of_interest(call->nr, *(const u32 *)(call->bytes + offset));
	default:
		return true;
	}
}

static long gs_filter_looked_at(struct gs_call *call)
{
	if (gs_call_copy(call))
		return -EFAULT;
	if (!gs_call_is_of_interest(call) || gs_agent_includes_current())
		return gs_call_original(call);
	if (gs_call_copy_params(call))
		return -EFAULT;
	call->client = NULL;
	call->source = NULL;
	call->adopted = NULL;
	call->object = NULL;
	call->parent = NULL;
	return gs_filter_call(call);
}

/**
 * gs_filter_ioctl() - stands for the driver's ioctl
 * @file: as the driver gets it
 * @cmd: see @file
 * @arg: see @file
 * @driver: the driver's own, of gs_sites[]
 *
 * Return: what the driver returns, or 0 with an RM status in the argument for what is refused, or
 * -EFAULT for an argument that cannot be read.
 */
long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, unsigned long driver)
{
	struct rm_xfer xfer = { .cmd = _IOC_NR(cmd), .size = _IOC_SIZE(cmd), .ptr = arg };
	struct gs_call call gs_uninitialized;

	if (xfer.cmd == RM_ESC_XFER && xfer.size == sizeof(xfer) &&
	    copy_from_user(&xfer, (const void __user *)arg, sizeof(xfer)))
		return -EFAULT;
	call.file = file;
	call.cmd = cmd;
	call.arg = arg;
	call.driver = driver;
	call.nr = xfer.cmd;
	call.size = xfer.size;
	call.user = u64_to_user_ptr(xfer.ptr);
	if (rm_call_kind(xfer.cmd, xfer.size) == RM_CALL_OTHER)
		return gs_call_original(&call);
	return gs_filter_looked_at(&call);
}
