// SPDX-License-Identifier: GPL-2.0
/*
 * The driver's own part makes a DMA buffer (nv-dmabuf.c), and does not come by rm_ioctl. For each
 * object it calls rm_dma_buf_dup_mem_handle(stack, gpu, client, own client, device, subdevice,
 * instance, memory, offset, size, name, ...) of RM, and rm_dma_buf_undup_mem_handle(stack, gpu, own
 * client, name) when the buffer is released or could not be made. These arguments are the same in
 * the releases 525 to 595. Only there it is known what goes into a buffer, because another thread
 * of the program can change the argument of the ioctl after the filter has looked at it.
 *
 * RM takes the memory of any client that the argument names, whoever made it. The first probe lets
 * it take that of the client alone that the filter has found to be the caller's.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>

#include "driver/call.h"
#include "driver/dma_buf.h"
#include "driver/pin.h"
#include "state/buffered.h"

#define GS_NO_CLIENT 0 /* RM has none of this handle. */

/* What is kept of a call of RM's function until it returns. */
struct gs_dma_buf_dup {
	struct gs_buffering *buffering;
	u32 own_client, memory;
	const u32 *name;
};

/* An argument that is passed on the stack, counted from 1; above them lies the return address. */
static unsigned long gs_argument(struct pt_regs *regs, unsigned int number)
{
	return regs_get_kernel_stack_nth(regs, number - 6);
}

static int gs_dma_buf_dup(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct gs_dma_buf_dup *dup = (struct gs_dma_buf_dup *)instance->data;
	const struct gs_call *call = gs_pin_current();

	if (!call && !gs_pin_bars_unseen())
		return 1; /* It is the agent's, or the hook is drained: it is not counted. */
	if (!call || !call->buffering || call->rm.client != (u32)regs->dx ||
	    !gs_buffered_may_come(call->buffering)) {
		regs->dx = GS_NO_CLIENT;
		return 1;
	}
	dup->buffering = call->buffering;
	dup->own_client = regs->cx;
	dup->memory = gs_argument(regs, 8);
	dup->name = (const u32 *)gs_argument(regs, 11);
	return 0;
}

static int gs_dma_buf_dupped(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct gs_dma_buf_dup *dup = (const struct gs_dma_buf_dup *)instance->data;

	if ((u32)regs_return_value(regs) == RM_OK)
		gs_buffered_came(dup->buffering, dup->memory, dup->own_client, *dup->name);
	return 0;
}

/* A name that goes is noticed also while the hook is drained. */
static int gs_dma_buf_undup(struct kprobe *probe, struct pt_regs *regs)
{
	gs_buffered_went(regs->dx, regs->cx);
	return 0;
}

static struct kretprobe gs_dma_buf_dup_probe;
static char gs_dma_buf_dup_symbol[64];
static struct kprobe gs_dma_buf_undup_probe;
static char gs_dma_buf_undup_symbol[64];
static bool gs_dma_buf_watched; /* Calls read it while the hook comes and goes. */

/**
 * gs_dma_buf_attach() - Watch what goes into DMA buffers and comes out of them.
 * @driver: The name of the driver's module.
 *
 * If that cannot be done, gs_dma_buf_is_watched() says so.
 */
void gs_dma_buf_attach(const char *driver)
{
	int err;

	snprintf(gs_dma_buf_dup_symbol, sizeof(gs_dma_buf_dup_symbol),
		 "%s:rm_dma_buf_dup_mem_handle", driver);
	snprintf(gs_dma_buf_undup_symbol, sizeof(gs_dma_buf_undup_symbol),
		 "%s:rm_dma_buf_undup_mem_handle", driver);
	gs_dma_buf_undup_probe = (struct kprobe){
		.symbol_name = gs_dma_buf_undup_symbol,
		.pre_handler = gs_dma_buf_undup,
	};
	gs_dma_buf_dup_probe = (struct kretprobe){
		.kp.symbol_name = gs_dma_buf_dup_symbol,
		.entry_handler = gs_dma_buf_dup,
		.handler = gs_dma_buf_dupped,
		.data_size = sizeof(struct gs_dma_buf_dup),
	};
	err = register_kprobe(&gs_dma_buf_undup_probe);
	if (!err) {
		err = register_kretprobe(&gs_dma_buf_dup_probe);
		if (err)
			unregister_kprobe(&gs_dma_buf_undup_probe);
	}
	WRITE_ONCE(gs_dma_buf_watched, !err);
	if (err)
		pr_warn("memory in DMA buffers is not watched (%d)\n", err);
}

/**
 * gs_dma_buf_detach() - Remove the probes; nothing of them is under way when this returns.
 */
void gs_dma_buf_detach(void)
{
	if (!gs_dma_buf_watched)
		return;
	WRITE_ONCE(gs_dma_buf_watched, false);
	unregister_kretprobe(&gs_dma_buf_dup_probe);
	unregister_kprobe(&gs_dma_buf_undup_probe);
}

/**
 * gs_dma_buf_is_watched() - Is it known what is in DMA buffers?
 *
 * Return: False if the driver lacks the functions.
 */
bool gs_dma_buf_is_watched(void)
{
	return READ_ONCE(gs_dma_buf_watched);
}
