// SPDX-License-Identifier: GPL-2.0
/*
 * A probe at rm_ioctl(stack, gpu, file, command, argument, size), where the driver enters RM and
 * `argument` is its copy in kernel memory. For a call that the filter has looked at, RM is given the
 * filter's copy instead: it acts on what was decided on, and answers there, out of the program's
 * reach; gs_call_driver() hands the answer on. A call of interest that the filter has not seen was
 * swapped in behind its back, and becomes one that RM does not know.
 *
 * Calls in progress are found by their task. The probe runs with preemption off and takes no lock but
 * the bucket's.
 */
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/spinlock.h>

#include "agent.h"
#include "filter.h"
#include "pin.h"
#include "refusals.h"

bool gs_pin_is_attached;

#ifdef CONFIG_X86_64

#define GS_NO_COMMAND 0xFFFFFFFFu /* RM answers that it does not know it */
#define GS_GRACE (HZ / 10) /* for calls on their way into RM when the hook came: not filtered */

static struct gs_pin_bucket {
	raw_spinlock_t lock;
	struct hlist_head calls;
} gs_pins[256] = { [0 ... 255] = { .lock = __RAW_SPIN_LOCK_UNLOCKED(gs_pins.lock) } };

static unsigned long gs_attached_at;

static struct gs_pin_bucket *gs_pin_bucket(const struct task_struct *task)
{
	return &gs_pins[hash_ptr(task, 8)];
}

/**
 * gs_pin_begin() - the driver is about to be called
 * @call: of the current task; stays in place until gs_pin_end()
 */
void gs_pin_begin(struct gs_call *call)
{
	struct gs_pin_bucket *bucket = gs_pin_bucket(current);
	unsigned long flags;

	call->task = current;
	call->is_pinned = false;
	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&call->pin, &bucket->calls);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
}

/**
 * gs_pin_end() - the driver has returned
 * @call: from gs_pin_begin()
 */
void gs_pin_end(struct gs_call *call)
{
	struct gs_pin_bucket *bucket = gs_pin_bucket(current);
	unsigned long flags;

	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_del(&call->pin);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
}

/* The call of the current task. It stays: only the task itself ends it. */
static struct gs_call *gs_pin_of_current(void)
{
	struct gs_pin_bucket *bucket = gs_pin_bucket(current);
	struct gs_call *call, *found = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(call, &bucket->calls, pin) {
		if (call->task == current)
			found = call;
	}
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	return found;
}

/* The rest of the check, apart so that other calls do not pay for its frame. */
static noinline bool gs_pin_parsed_is_of_interest(u32 nr, u32 size, const void *argument)
{
	u8 bytes[RM_ARG_BYTES] __aligned(8) = {};
	struct rm_call rm;

	memcpy(bytes, argument, min_t(u32, size, sizeof(bytes)));
	rm_call_parse(nr, size, bytes, &rm);
	return gs_rm_is_of_interest(&rm);
}

/* Does the filter look at such a call? @argument has @size bytes. */
static __always_inline bool gs_pin_is_of_interest(u32 nr, u32 size, const void *argument)
{
	switch (rm_call_kind(nr, size)) {
	case RM_CALL_OTHER:
		return false;
	case RM_CALL_CONTROL:
		return gs_rule_of(((const struct rm_nvos54 *)argument)->cmd) != GS_RULE_NONE;
	default:
		return gs_pin_parsed_is_of_interest(nr, size, argument);
	}
}

static noinline void gs_pin_swap(u32 nr, u32 size, struct pt_regs *regs)
{
	struct gs_call *call = gs_pin_of_current();

	if (call && call->nr == nr && call->size == size) {
		call->is_pinned = true;
		regs->r8 = (unsigned long)call->bytes;
	} else if (call || (time_after(jiffies, gs_attached_at + GS_GRACE) &&
			    !gs_agent_includes_current())) {
		regs->cx = GS_NO_COMMAND;
	}
}

static int gs_pin_enter(struct kprobe *probe, struct pt_regs *regs)
{
	u32 nr = regs->cx, size = regs->r9;

	if (gs_pin_is_of_interest(nr, size, (const void *)regs->r8))
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
	int err;

	snprintf(gs_pin_symbol, sizeof(gs_pin_symbol), "%s:rm_ioctl", driver);
	gs_pin_probe = (struct kprobe){
		.symbol_name = gs_pin_symbol,
		.pre_handler = gs_pin_enter,
	};
	gs_attached_at = jiffies;
	err = register_kprobe(&gs_pin_probe);
	WRITE_ONCE(gs_pin_is_attached, !err);
	return err;
}

/**
 * gs_pin_detach() - no more; nothing is under way when it returns
 */
void gs_pin_detach(void)
{
	if (!gs_pin_is_attached)
		return;
	WRITE_ONCE(gs_pin_is_attached, false);
	unregister_kprobe(&gs_pin_probe);
}

#else

int gs_pin_attach(const char *driver)
{
	return -EOPNOTSUPP;
}

void gs_pin_detach(void)
{
}

void gs_pin_begin(struct gs_call *call)
{
	call->is_pinned = false;
}

void gs_pin_end(struct gs_call *call)
{
}

#endif /* CONFIG_X86_64 */
