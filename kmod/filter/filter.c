// SPDX-License-Identifier: GPL-2.0
/*
 * The way of an ioctl through the filter, up to the point where its kind decides. It runs in the
 * caller's context and may sleep. While the driver works it holds no lock except the order of its
 * client. All that is decided is decided on copies, which are made once; the driver acts on them.
 */
#include <linux/ioctl.h>
#include <linux/uaccess.h>

#include "compat/user.h"
#include "compat/version.h"
#include "driver/call.h"
#include "filter/filter.h"
#include "filter/verdicts.h"
#include "rm/interest.h"
#include "news/agent.h"

/* For the sizes of the calls that make memory the compiler makes code without a loop. */
static int gs_call_read(struct gs_call *call)
{
	switch (call->size) {
	case sizeof(struct rm_nvos64):
		return gs_user_read(call->bytes, call->user, sizeof(struct rm_nvos64));
	case sizeof(struct rm_nvos00):
		return gs_user_read(call->bytes, call->user, sizeof(struct rm_nvos00));
	default:
		return gs_user_read(call->bytes, call->user, min_t(u32, call->size, RM_ARG_MAX));
	}
}

static int gs_call_copy_params(struct gs_call *call)
{
	const u8 __user *user = u64_to_user_ptr(call->rm.p_params);
	struct rm_params_place wanted = rm_params_wanted(&call->rm);

	call->wanted = wanted;
	call->params = (struct rm_params){ 0 };
	if (wanted.attr_bytes &&
	    gs_user_read(&call->params.attr, user + wanted.attr_at, wanted.attr_bytes))
		return -EFAULT;
	if (!wanted.value_bytes)
		return 0;
	return gs_user_read(&call->params.value, user + wanted.value_at, wanted.value_bytes);
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
	case RM_CALL_REGISTER:
		return gs_filter_register(call);
	case RM_CALL_EXPORT:
		return gs_filter_dma_buf(call);
	default: /* Memory that is not remembered is made as it was looked at. */
		gs_call_driver(call, &answer);
		return answer.ret;
	}
}

static bool gs_call_is_of_interest(const struct gs_call *call, enum rm_call_kind kind)
{
	u32 offset;

	switch (gs_interest_in_kind(kind, call->nr, &offset)) {
	case GS_INTEREST_NONE:
		return false;
	case GS_INTEREST_BY_WORD:
		return gs_word_is_of_interest(call->nr, *(const u32 *)(call->bytes + offset));
	default:
		return true;
	}
}

static long gs_filter_inner(struct gs_call *call)
{
	enum rm_call_kind kind = rm_call_kind(call->nr, call->size);

	if (kind == RM_CALL_OTHER)
		return gs_call_original(call);
	if (gs_call_read(call))
		return -EFAULT;
	if (!gs_call_is_of_interest(call, kind) || gs_agent_includes_current())
		return gs_call_original(call);
	rm_call_parse(call->nr, call->size, call->bytes, &call->rm);
	if (gs_call_copy_params(call))
		return -EFAULT;
	call->process = NULL;
	call->client = NULL;
	call->holder = call->file;
	call->source = NULL;
	call->new_client = NULL;
	call->object = NULL;
	call->parent = NULL;
	call->buffering = NULL;
	call->carried = NULL;
	return gs_filter_call(call);
}

/* Replaces an XFER by the command inside. */
static noinline int gs_call_unwrap(struct gs_call *call)
{
	struct rm_xfer xfer;

	if (copy_from_user(&xfer, (const void __user *)call->arg, sizeof(xfer)))
		return -EFAULT;
	call->nr = xfer.cmd;
	call->size = xfer.size;
	call->user = u64_to_user_ptr(xfer.ptr);
	return 0;
}

/**
 * gs_filter_ioctl() - Stand for the driver's ioctl.
 * @file: The file, as the driver gets it.
 * @cmd: The command, as the driver gets it.
 * @arg: The argument, as the driver gets it.
 * @driver: The driver's own function, of gs_sites[].
 *
 * Return: What the driver returns, or 0 with an RM status in the argument for what is refused, or
 * -EFAULT for an argument that cannot be read.
 */
long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, unsigned long driver)
{
	struct gs_call call gs_uninitialized;

	call.file = file;
	call.cmd = cmd;
	call.arg = arg;
	call.driver = driver;
	call.nr = _IOC_NR(cmd);
	call.size = _IOC_SIZE(cmd);
	call.user = (u8 __user *)arg;
	if (call.nr == RM_ESC_XFER && call.size == sizeof(struct rm_xfer) && gs_call_unwrap(&call))
		return -EFAULT;
	return gs_filter_inner(&call);
}
