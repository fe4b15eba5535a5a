// SPDX-License-Identifier: GPL-2.0
/*
 * The pin is a probe at rm_ioctl(stack, gpu, file, command, argument, size). There the driver
 * enters RM, and `argument` is its copy in kernel memory. For a call that the filter has looked at,
 * RM is given the filter's copy instead: it acts on what was decided on, and answers there, out of
 * the program's reach. gs_call_driver() hands the answer on. A call of interest that the filter has
 * not seen was swapped in behind its back, and is made one that RM does not know.
 *
 * RM copies the parameters that the argument points to by os_memcpy_from_user(). That function is
 * diverted, and what the filter has read of them (call->params) is put over the copy. RM's answer
 * is taken when it goes back by os_memcpy_to_user().
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/file.h>
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list_bl.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "compat/user.h"
#include "driver/armed.h"
#include "driver/call.h"
#include "driver/divert.h"
#include "driver/pin.h"
#include "rm/interest.h"
#include "rm/rm_kept.h"
#include "news/agent.h"

#define GS_PIN_BITS 8
#define GS_NO_COMMAND 0xFFFFFFFFu /* RM answers that it does not know it. */
#define GS_GRACE (HZ / 10)        /* for calls that were on their way into RM when the hook came */

atomic_t gs_pins_with_params = ATOMIC_INIT(0);

/**
 * struct gs_pin_slot - The calls in progress of the tasks with the same hash.
 * @task: The task that owns the slot, NULL if it is free.
 * @call: The call of @task, which alone reads and writes it.
 * @others: The calls of tasks that came while the slot was taken.
 *
 * Calls in progress are found by their task. A slot holds one of them, which only its task looks
 * at, and a list holds those that came while the slot was taken. The probe runs with preemption
 * off, and until the kernel has optimized it like an NMI, so the lock of the list is a bit in its
 * head, which is never held there.
 */
static struct gs_pin_slot {
	struct task_struct *task;
	struct gs_call *call;
	struct hlist_bl_head others;
} gs_pins[1 << GS_PIN_BITS];
static void (*gs_pin_on_miss)(void);
static bool gs_pin_is_barring;
static unsigned long gs_barring_since;

static __always_inline struct gs_pin_slot *gs_pin_slot(void)
{
	return &gs_pins[hash_ptr(current, GS_PIN_BITS)];
}

static noinline void gs_pin_add_to_others(struct gs_pin_slot *slot, struct gs_call *call)
{
	hlist_bl_lock(&slot->others);
	hlist_bl_add_head(&call->pin, &slot->others);
	hlist_bl_unlock(&slot->others);
}

static noinline void gs_pin_remove_from_others(struct gs_pin_slot *slot, struct gs_call *call)
{
	hlist_bl_lock(&slot->others);
	__hlist_bl_del(&call->pin);
	hlist_bl_unlock(&slot->others);
}

static noinline struct gs_call *gs_pin_among_others(struct gs_pin_slot *slot)
{
	struct gs_call *call, *found = NULL;
	struct hlist_bl_node *node;

	hlist_bl_lock(&slot->others);
	hlist_bl_for_each_entry(call, node, &slot->others, pin) {
		if (call->task == current)
			found = call;
	}
	hlist_bl_unlock(&slot->others);
	return found;
}

/* Comes before the driver is called; @call stays in place until gs_pin_end(). */
static __always_inline void gs_pin_begin(struct gs_call *call)
{
	struct gs_pin_slot *slot = gs_pin_slot();

	call->task = current;
	call->is_pinned = false;
	call->is_params_answer = false;
	if (call->wanted.value_bytes)
		atomic_inc(&gs_pins_with_params);
	if (cmpxchg(&slot->task, NULL, current))
		gs_pin_add_to_others(slot, call);
	else
		slot->call = call;
}

static __always_inline void gs_pin_end(struct gs_call *call)
{
	struct gs_pin_slot *slot = gs_pin_slot();

	if (READ_ONCE(slot->task) == current)
		smp_store_release(&slot->task, NULL); /* pairs with the next owner's cmpxchg() */
	else
		gs_pin_remove_from_others(slot, call);
	if (call->wanted.value_bytes)
		atomic_dec(&gs_pins_with_params);
}

/* For the sizes of the calls that make memory the compiler makes code without a loop. */
static int gs_call_write(const struct gs_call *call)
{
	switch (call->size) {
	case sizeof(struct rm_nvos64):
		return gs_user_write(call->user, call->bytes, sizeof(struct rm_nvos64));
	case sizeof(struct rm_nvos00):
		return gs_user_write(call->user, call->bytes, sizeof(struct rm_nvos00));
	default:
		return gs_user_write(call->user, call->bytes, call->size);
	}
}

/*
 * A call that succeeds has passed the probe, unless somebody has disarmed that, or another thread
 * of the program has changed it into one that is not watched.
 */
static __always_inline long gs_call_pinned(struct gs_call *call)
{
	long ret;

	gs_pin_begin(call);
	ret = gs_call_original(call);
	gs_pin_end(call);
	if (unlikely(!ret && !call->is_pinned))
		gs_pin_on_miss();
	return ret;
}

/**
 * gs_call_driver() - Let the driver make a call, and learn what it said.
 * @call: The call as it was made.
 * @answer: Out: all members.
 *
 * RM answers in our memory, and the answer is handed on to the caller here. If the driver refuses a
 * call before RM comes to it, it leaves the status that the program has written there. So a status
 * that RM does not have is put there first.
 */
void gs_call_driver(struct gs_call *call, struct gs_answer *answer)
{
	u32 *status = (u32 *)(call->bytes + call->rm.status_offset), before = *status;

	*status = GS_STATUS_NONE;
	answer->ret = gs_call_pinned(call);
	answer->status = *status;
	answer->is_done = *status == RM_OK;
	if (*status == GS_STATUS_NONE)
		*status = before;
	if (call->is_pinned && gs_call_write(call))
		answer->ret = -EFAULT;
}

/**
 * gs_call_driver_without_status() - Let the driver make a call that has no status.
 * @call: A call of kind REGISTER.
 *
 * Return: What the ioctl returns. After -EFAULT it may have happened all the same.
 */
long gs_call_driver_without_status(struct gs_call *call)
{
	long ret = gs_call_pinned(call);

	return call->is_pinned && gs_call_write(call) ? -EFAULT : ret;
}

/**
 * gs_call_driver_unpinned() - Let the driver make a call that does not come by rm_ioctl.
 * @call: A call of kind EXPORT. Nothing of it is pinned: driver/dma_buf.c watches it.
 *
 * Return: What the ioctl returns.
 */
long gs_call_driver_unpinned(struct gs_call *call)
{
	long ret;

	gs_pin_begin(call);
	ret = gs_call_original(call);
	gs_pin_end(call);
	return ret;
}

/**
 * gs_call_driver_at_once() - Do the same without waiting for a page of the caller's.
 * @call: See gs_call_driver().
 * @answer: Out: -EFAULT means that a page was missing when the driver was to read the argument, or,
 *	if @call->is_pinned, when RM's answer was to be written, which is in @call->bytes.
 */
void gs_call_driver_at_once(struct gs_call *call, struct gs_answer *answer)
{
	pagefault_disable();
	gs_call_driver(call, answer);
	pagefault_enable();
}

/* The call of the current task, which stays because only the task itself ends it. */
static __always_inline struct gs_call *gs_pin_of_current(void)
{
	struct gs_pin_slot *slot = gs_pin_slot();

	if (READ_ONCE(slot->task) == current)
		return slot->call;
	return hlist_bl_empty(&slot->others) ? NULL : gs_pin_among_others(slot);
}

/**
 * gs_pin_of_params() - Find the call of the current task, if these are its pinned parameters.
 * @address: The address of parameters that are being copied.
 *
 * A task that copies some for a call of ours holds a reference on the module.
 *
 * Return: The call or NULL.
 */
notrace struct gs_call *gs_pin_of_params(unsigned long address)
{
	struct gs_call *call = gs_pin_of_current();

	return call && call->wanted.value_bytes && call->rm.p_params == address ? call : NULL;
}

/**
 * gs_pin_copy_in() - Stand for os_memcpy_from_user().
 * @to: RM's copy, which the driver makes.
 * @from: The address of pinned parameters.
 * @bytes: The size of all parameters.
 * @call: The call that they belong to. What was read of them is put over the copy.
 *
 * Return: What the driver's own function returns.
 */
unsigned long gs_pin_copy_in(unsigned long to, unsigned long from, unsigned long bytes,
			     struct gs_call *call)
{
	unsigned long status = gs_divert_original(to, from, bytes, gs_sites[GS_SITE_COPY_IN]);

	if ((u32)status == RM_OK)
		rm_params_put((void *)to, bytes, &call->wanted, &call->params);
	return status;
}

/**
 * gs_pin_copy_out() - Take RM's answer, if it goes to pinned parameters.
 * @to: Their address in the caller's memory.
 * @from: RM's copy.
 * @bytes: The size of all parameters.
 */
notrace void gs_pin_copy_out(unsigned long to, unsigned long from, unsigned long bytes)
{
	struct gs_call *call = gs_pin_of_params(to);

	if (!call)
		return;
	rm_params_get((const void *)from, bytes, &call->wanted, &call->params);
	if (unlikely(call->carried) && bytes >= rm_carried_bytes(call->rm.cmd))
		memcpy(call->carried, (const void *)from, rm_carried_bytes(call->rm.cmd));
	call->is_params_answer = true;
}

/**
 * gs_pin_current() - Find what the current task has under way in the driver.
 *
 * It does not sleep, and may be called from probes.
 *
 * Return: The call, or NULL if the filter has not seen it.
 */
struct gs_call *gs_pin_current(void)
{
	return gs_pin_of_current();
}

/**
 * gs_pin_bars_unseen() - Is a call barred that the filter has not seen?
 *
 * Return: False for the agent's, because the filter lets them pass; and for all while the module
 * comes or goes.
 */
bool gs_pin_bars_unseen(void)
{
	return smp_load_acquire(&gs_pin_is_barring) && /* pairs with gs_pin_bar() */
	       module_is_live(THIS_MODULE) &&
	       time_after(jiffies, READ_ONCE(gs_barring_since) + GS_GRACE) &&
	       !gs_agent_includes_current();
}

static noinline void gs_pin_refuse(const struct gs_call *call, struct pt_regs *regs)
{
	if (call || gs_pin_bars_unseen())
		regs->cx = GS_NO_COMMAND;
}

static __always_inline void gs_pin_swap(u32 nr, u32 size, struct pt_regs *regs)
{
	struct gs_call *call = gs_pin_of_current();

	if (call && call->nr == nr && call->size == size) {
		call->is_pinned = true;
		regs->r8 = (unsigned long)call->bytes;
	} else {
		gs_pin_refuse(call, regs);
	}
}

static int gs_pin_enter(struct kprobe *probe, struct pt_regs *regs)
{
	const u8 *argument = (const u8 *)regs->r8;
	u32 nr = regs->cx, size = regs->r9, offset = 0;
	enum gs_interest interest = gs_interest_in(nr, size, &offset);

	if (interest == GS_INTEREST_NONE || nr == RM_ESC_EXPORT_DMA_BUF) /* RM has not that. */
		return 0;
	if (interest == GS_INTEREST_SURE ||
	    gs_word_is_of_interest(nr, *(const u32 *)(argument + offset)))
		gs_pin_swap(nr, size, regs);
	return 0;
}

/*
 * RM gives back a file that it has looked up by a descriptor, in nv_put_file_private(file). Another
 * thread can change what the descriptor leads to, so only here it is known which file it was.
 */
static int gs_pin_put_file(struct kprobe *probe, struct pt_regs *regs)
{
	struct gs_call *call = gs_pin_of_current();

	if (call && call->carried && !call->carrier)
		call->carrier = get_file((struct file *)regs->di);
	return 0;
}

static struct kprobe gs_pin_probe;
static char gs_pin_symbol[64];
static struct kprobe gs_pin_file_probe;
static char gs_pin_file_symbol[64];
static bool gs_pin_sees_files;

/**
 * gs_pin_attach() - Let RM do what was decided on from now on.
 * @driver: The name of the driver's module.
 * @on_miss: The function that is called when a call may have passed the probe unseen, so that
 *	gs_pin_is_armed() is to be asked. It must not sleep.
 *
 * Return: 0, -EPERM if kprobes are disarmed, or another negative errno.
 */
int gs_pin_attach(const char *driver, void (*on_miss)(void))
{
	int err = gs_armed_attach();

	if (err)
		return err;
	gs_pin_on_miss = on_miss;
	snprintf(gs_pin_symbol, sizeof(gs_pin_symbol), "%s:rm_ioctl", driver);
	gs_pin_probe = (struct kprobe){
		.symbol_name = gs_pin_symbol,
		.pre_handler = gs_pin_enter,
	};
	err = gs_armed_is_so() ? register_kprobe(&gs_pin_probe) : -EPERM;
	if (err) {
		gs_armed_detach();
		return err;
	}
	snprintf(gs_pin_file_symbol, sizeof(gs_pin_file_symbol), "%s:nv_put_file_private", driver);
	gs_pin_file_probe = (struct kprobe){
		.symbol_name = gs_pin_file_symbol,
		.pre_handler = gs_pin_put_file,
	};
	err = register_kprobe(&gs_pin_file_probe);
	gs_pin_sees_files = !err;
	if (err)
		pr_warn("memory that goes by a descriptor is not watched (%d)\n", err);
	return 0;
}

/**
 * gs_pin_detach() - Remove the probe; nothing of it is under way when this returns.
 */
void gs_pin_detach(void)
{
	if (gs_pin_sees_files)
		unregister_kprobe(&gs_pin_file_probe);
	gs_pin_sees_files = false;
	unregister_kprobe(&gs_pin_probe);
	gs_armed_detach();
}

/**
 * gs_pin_is_armed() - Does every call into RM pass the probe?
 *
 * Return: False if calls pass unseen.
 */
bool gs_pin_is_armed(void)
{
	return !kprobe_gone(&gs_pin_probe) && gs_armed_is_so();
}

/**
 * gs_pin_bar() - Set whether calls of interest are barred that were not filtered.
 * @is_barring: True bars them after GS_GRACE, so that those which are under way pass.
 */
void gs_pin_bar(bool is_barring)
{
	WRITE_ONCE(gs_barring_since, jiffies);
	/* This pairs with gs_pin_bars_unseen(), which sees it with its time or not yet. */
	smp_store_release(&gs_pin_is_barring, is_barring);
}
