// SPDX-License-Identifier: GPL-2.0
/*
 * A probe at rm_ioctl(stack, gpu, file, command, argument, size), where the driver enters RM and
 * `argument` is its copy in kernel memory. For a call that the filter has looked at, RM is given
 * the filter's copy instead: it acts on what was decided on, and answers there, out of the
 * program's reach; gs_call_driver() hands the answer on. A call of interest that the filter has not
 * seen was swapped in behind its back, and becomes one that RM does not know.
 *
 * Of the parameters that the argument points to, RM makes its copy by os_memcpy_from_user(). That
 * function is diverted, and what the filter has read of them (call->params) is put over the copy;
 * RM's answer is taken when it goes back by os_memcpy_to_user().
 *
 * Calls in progress are found by their task. The probe runs with preemption off, and before the
 * kernel has optimized it like an NMI: so the lock is a bit in the bucket, which is never held
 * there.
 */
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list_bl.h>
#include <linux/module.h>

#include "agent.h"
#include "divert.h"
#include "filter.h"
#include "interest.h"
#include "pin.h"

#define GS_PIN_BITS 8
#define GS_NO_COMMAND 0xFFFFFFFFu /* RM answers that it does not know it */
#define GS_GRACE (HZ / 10) /* for calls on their way into RM when the hook came: not filtered */

atomic_t gs_pins_with_params = ATOMIC_INIT(0);

static struct hlist_bl_head gs_pins[1 << GS_PIN_BITS];
static bool gs_pin_is_barring;
static unsigned long gs_barring_since;

static struct hlist_bl_head *gs_pin_bucket(void)
{
	return &gs_pins[hash_ptr(current, GS_PIN_BITS)];
}

/**
 * gs_pin_begin() - the driver is about to be called
 * @call: of the current task; stays in place until gs_pin_end()
 */
void gs_pin_begin(struct gs_call *call)
{
	struct hlist_bl_head *bucket = gs_pin_bucket();

	call->task = current;
	call->is_pinned = false;
	call->is_params_answer = false;
	if (call->params_bytes)
		atomic_inc(&gs_pins_with_params);
	hlist_bl_lock(bucket);
	hlist_bl_add_head(&call->pin, bucket);
	hlist_bl_unlock(bucket);
}

/**
 * gs_pin_end() - the driver has returned
 * @call: from gs_pin_begin()
 */
void gs_pin_end(struct gs_call *call)
{
	struct hlist_bl_head *bucket = gs_pin_bucket();

	hlist_bl_lock(bucket);
	__hlist_bl_del(&call->pin);
	hlist_bl_unlock(bucket);
	if (call->params_bytes)
		atomic_dec(&gs_pins_with_params);
}

/* The call of the current task. It stays: only the task itself ends it. */
static struct gs_call *gs_pin_of_current(void)
{
	struct hlist_bl_head *bucket = gs_pin_bucket();
	struct gs_call *call, *found = NULL;
	struct hlist_bl_node *node;

	hlist_bl_lock(bucket);
	hlist_bl_for_each_entry(call, node, bucket, pin) {
		if (call->task == current)
			found = call;
	}
	hlist_bl_unlock(bucket);
	return found;
}

static struct gs_call *gs_pin_with_params_at(unsigned long address)
{
	struct gs_call *call = gs_pin_of_current();

	return call && call->params_bytes && call->rm.p_params == address ? call : NULL;
}

/**
 * gs_pin_wants_copy_in() - are these parameters pinned?
 * @from: where the current task's call is about to read some
 *
 * Return: true when gs_pin_copy_in() is to do it.
 */
bool gs_pin_wants_copy_in(unsigned long from)
{
	return gs_pin_with_params_at(from);
}

/**
 * gs_pin_copy_in() - stands for os_memcpy_from_user()
 * @to: RM's copy
 * @from: of pinned parameters
 * @bytes: of the whole
 *
 * Return: what the driver's own returns.
 */
unsigned long gs_pin_copy_in(unsigned long to, unsigned long from, unsigned long bytes)
{
	unsigned long status = gs_divert_original(to, from, bytes, gs_sites[GS_SITE_COPY_IN]);
	const struct gs_call *call = gs_pin_with_params_at(from);

	if ((u32)status == RM_OK)
		memcpy((void *)to, &call->params, min_t(u32, bytes, call->params_bytes));
	return status;
}

/**
 * gs_pin_copy_out() - RM answers in some parameters
 * @to: the caller's memory
 * @from: RM's copy
 * @bytes: of the whole
 */
void gs_pin_copy_out(unsigned long to, unsigned long from, unsigned long bytes)
{
	struct gs_call *call = gs_pin_with_params_at(to);

	if (!call)
		return;
	memcpy(&call->params, (const void *)from, min_t(u32, bytes, call->params_bytes));
	call->is_params_answer = true;
}

/*
 * Is a call barred that the filter has not seen? Not the agent's, which the filter lets pass, and
 * not while the module comes or goes: then it lets everyone pass.
 */
static bool gs_pin_bars_unseen(void)
{
	return smp_load_acquire(&gs_pin_is_barring) && /* see gs_pin_bar() */
	       module_is_live(THIS_MODULE) &&
	       time_after(jiffies, READ_ONCE(gs_barring_since) + GS_GRACE) &&
	       !gs_agent_includes_current();
}

static noinline void gs_pin_swap(u32 nr, u32 size, struct pt_regs *regs)
{
	struct gs_call *call = gs_pin_of_current();

	if (call && call->nr == nr && call->size == size) {
		call->is_pinned = true;
		regs->r8 = (unsigned long)call->bytes;
	} else if (call || gs_pin_bars_unseen()) {
		regs->cx = GS_NO_COMMAND;
	}
}

static int gs_pin_enter(struct kprobe *probe, struct pt_regs *regs)
{
	const u8 *argument = (const u8 *)regs->r8;
	u32 nr = regs->cx, size = regs->r9, offset = 0;
	enum gs_interest interest = gs_interest_in(nr, size, &offset);

	if (interest == GS_INTEREST_NONE)
		return 0;
	if (interest == GS_INTEREST_SURE ||
	    gs_word_is_of_interest(nr, *(const u32 *)(argument + offset)))
		gs_pin_swap(nr, size, regs);
	return 0;
}

static struct kprobe gs_pin_probe;
static char gs_pin_symbol[64];

/**
 * gs_pin_attach() - from now on what was decided on is what is done
 * @driver: name of its module
 *
 * Return: 0 or a negative errno.
 */
int gs_pin_attach(const char *driver)
{
	snprintf(gs_pin_symbol, sizeof(gs_pin_symbol), "%s:rm_ioctl", driver);
	gs_pin_probe = (struct kprobe){
		.symbol_name = gs_pin_symbol,
		.pre_handler = gs_pin_enter,
	};
	return register_kprobe(&gs_pin_probe);
}

/**
 * gs_pin_detach() - no more; nothing is under way when it returns
 */
void gs_pin_detach(void)
{
	unregister_kprobe(&gs_pin_probe);
}

/**
 * gs_pin_bar() - are calls of interest barred that were not filtered?
 * @is_barring: yes, soon: those that are under way pass; or no more
 */
void gs_pin_bar(bool is_barring)
{
	WRITE_ONCE(gs_barring_since, jiffies);
	/* Pairs with gs_pin_swap(): it is seen with its time, or not yet. */
	smp_store_release(&gs_pin_is_barring, is_barring);
}
