// SPDX-License-Identifier: GPL-2.0
/*
 * Probes at rm_ioctl(stack, gpu, file, command, argument, size), where `argument` is the driver's
 * copy in kernel memory. On entry it is overwritten with what the filter decided on; a command of
 * interest that the filter has not seen was swapped in behind its back, and becomes one that RM does
 * not know. On return the answer is taken before it goes to the caller's memory.
 *
 * Calls in progress are found by their task. The probes run with preemption off and take no lock but
 * the bucket's.
 */
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>

#include "agent.h"
#include "filter.h"
#include "pin.h"
#include "refusals.h"

bool gs_pin_is_attached;

#ifdef CONFIG_X86_64

#define GS_NO_COMMAND 0xFFFFFFFFu /* RM answers that it does not know it */
#define GS_GRACE (HZ / 10) /* for calls on their way into RM when the hook came: not filtered */
#define GS_CALLS 512 /* that wait for RM at once; it lets one through at a time */
#define GS_RETURNS (2 * GS_CALLS) /* more than calls and processors: a probe is never missed */

static struct gs_pin_bucket {
	raw_spinlock_t lock;
	struct hlist_head calls;
} gs_pins[256] = { [0 ... 255] = { .lock = __RAW_SPIN_LOCK_UNLOCKED(gs_pins.lock) } };

static struct semaphore gs_pin_room = __SEMAPHORE_INITIALIZER(gs_pin_room, GS_CALLS);
static unsigned long gs_attached_at;

static struct gs_pin_bucket *gs_pin_bucket(const struct task_struct *task)
{
	return &gs_pins[hash_ptr(task, 8)];
}

/**
 * gs_pin_begin() - the driver is about to be called
 * @call: of the current task; stays in place until gs_pin_end()
 *
 * May wait for other calls to end.
 */
void gs_pin_begin(struct gs_call *call)
{
	struct gs_pin_bucket *bucket = gs_pin_bucket(current);
	unsigned long flags;

	down(&gs_pin_room);
	call->task = current;
	call->has_answer = false;
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
	up(&gs_pin_room);
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

/* Does the filter look at such a call? @argument has @size bytes. */
static bool gs_pin_is_of_interest(u32 nr, u32 size, const void *argument)
{
	u8 bytes[RM_ARG_BYTES] __aligned(8);
	struct rm_call rm;

	switch (rm_call_kind(nr, size)) {
	case RM_CALL_OTHER:
		return false;
	case RM_CALL_CONTROL:
		return gs_rule_of(((const struct rm_nvos54 *)argument)->cmd) != GS_RULE_NONE;
	default:
		memset(bytes, 0, sizeof(bytes));
		memcpy(bytes, argument, min_t(u32, size, sizeof(bytes)));
		rm_call_parse(nr, size, bytes, &rm);
		return gs_rm_is_of_interest(&rm);
	}
}

/* 0: the return is of interest too. A call that was swapped out gets no answer: nothing is believed. */
static int gs_pin_enter(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u32 nr = regs->cx, size = regs->r9;
	void *argument = (void *)regs->r8;
	struct gs_call *call;

	if (!gs_pin_is_of_interest(nr, size, argument))
		return 1;
	call = gs_pin_of_current();
	if (call && call->nr == nr && call->size == size) {
		memcpy(argument, call->bytes, min_t(u32, size, sizeof(call->bytes)));
		*(void **)instance->data = argument;
		return 0;
	}
	if (call || (time_after(jiffies, gs_attached_at + GS_GRACE) && !gs_agent_includes_current()))
		regs->cx = GS_NO_COMMAND;
	return 1;
}

static int gs_pin_leave(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct gs_call *call = gs_pin_of_current();
	const void *argument = *(void **)instance->data;

	if (call) {
		memcpy(call->bytes, argument, min_t(u32, call->size, sizeof(call->bytes)));
		call->has_answer = true;
	}
	return 0;
}

static struct kretprobe gs_pin_probe;
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
	gs_pin_probe = (struct kretprobe){
		.kp.symbol_name = gs_pin_symbol,
		.entry_handler = gs_pin_enter,
		.handler = gs_pin_leave,
		.data_size = sizeof(void *),
		.maxactive = GS_RETURNS,
	};
	gs_attached_at = jiffies;
	err = register_kretprobe(&gs_pin_probe);
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
	unregister_kretprobe(&gs_pin_probe);
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
	call->has_answer = false;
}

void gs_pin_end(struct gs_call *call)
{
}

#endif /* CONFIG_X86_64 */
