/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a tenant holds of limited things: video memory by GPU, and contexts. Tenants form a tree,
 * and what one holds is held by all above it, so each limit binds everything below. A charge goes
 * from the tenant up to the root, like that of the kernel's page_counter, and is taken back from
 * the levels below the one that refuses.
 *
 * The numbers are atomic and take no lock. A limit is never passed, whatever is charged at the same
 * time. What is charged while a level above is still being asked counts already, so another charge
 * at the same instant may be refused although one level higher there is no room for the first.
 *
 * Memory is charged before the driver is asked, and held once the driver has given it. Limits are
 * about what is charged; what a tenant holds, and the most that it held, have nothing in them that
 * the driver has refused. What is held never passes what is charged. This header is pure, and
 * tests/kmod also compile it in user space, with atomic64_t of their own.
 */
#ifndef GPUSHARE_COUNTER_H
#define GPUSHARE_COUNTER_H

#ifdef __KERNEL__
#include <linux/atomic.h>

#include "members/settings.h"
#include "uapi/gpushare.h"
#else
#include "kmod/members/settings.h"
#include "kmod/uapi/gpushare.h"
#endif

#define GS_CONTEXTS_NONE 0xFFFFFFFFu
#define GS_CONTEXTS_MAX 1000000

/*
 * No GPU has as much memory, so the driver gives nobody more at once, whatever is asked for. More
 * is never charged: two such requests at once would otherwise pass 64 bits, and the second one
 * would be refused although its tenant has no limit.
 */
#define GS_CHARGE_MAX (1ULL << 44)

/**
 * struct gs_counter - What one tenant holds and may hold.
 * @parent: The counter of the tenant above, NULL at the top. It never changes.
 * @memory: The bytes of video memory that are charged, by GPU.
 * @memory_current: The bytes of video memory that are held, on all GPUs.
 * @memory_peak: The most that this was.
 * @contexts: The number of contexts.
 * @memory_max: How many bytes it may hold on each GPU, GS_MEMORY_NONE for no limit.
 * @gpu_memory_max: The same for each GPU by itself; the lesser limit holds.
 * @contexts_max: How many contexts it may have, GS_CONTEXTS_NONE for no limit.
 * @memory_refused: The number of allocations that did not fit, here or below.
 * @contexts_refused: The number of contexts beyond the limit, here or below.
 * @controls_refused: The number of scheduling controls that were refused, here or below.
 */
struct gs_counter {
	struct gs_counter *parent;
	atomic64_t memory[GPUSHARE_MAX_GPUS];
	atomic64_t memory_current;
	atomic64_t memory_peak;
	atomic64_t contexts;
	__u64 memory_max;
	__u64 gpu_memory_max[GPUSHARE_MAX_GPUS];
	__u32 contexts_max;
	atomic64_t memory_refused;
	atomic64_t contexts_refused;
	atomic64_t controls_refused;
};

static inline void gs_counter_init(struct gs_counter *counter, struct gs_counter *parent)
{
	__u32 gpu;

	counter->parent = parent;
	counter->memory_max = GS_MEMORY_NONE;
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++)
		counter->gpu_memory_max[gpu] = GS_MEMORY_NONE;
	counter->contexts_max = GS_CONTEXTS_NONE;
}

/* Adds to a number unless it would pass @max or 64 bits. Returns false if it would. */
static inline bool gs_counter_take(atomic64_t *taken, __u64 more, __u64 max)
{
	__s64 now = atomic64_read(taken);

	do {
		if (!gs_budget_fits((__u64)now, more, max))
			return false;
	} while (!atomic64_try_cmpxchg(taken, &now, now + (__s64)more));
	return true;
}

/* What is charged for a request. */
static inline __u64 gs_counter_charge_of(__u64 bytes)
{
	return bytes < GS_CHARGE_MAX ? bytes : GS_CHARGE_MAX;
}

/* Raises the most that a number was. */
static inline void gs_counter_raise(atomic64_t *most, __s64 value)
{
	__s64 now = atomic64_read(most);

	while (now < value && !atomic64_try_cmpxchg(most, &now, value))
		;
}

/* The limit of one level on one GPU. */
static inline __u64 gs_counter_memory_max(const struct gs_counter *counter, __u32 gpu)
{
	__u64 every = READ_ONCE(counter->memory_max);
	__u64 own = READ_ONCE(counter->gpu_memory_max[gpu]);

	return own < every ? own : every;
}

/**
 * gs_counter_try_memory() - Charge memory, up to the root.
 * @counter: That of the tenant.
 * @gpu: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: How much more is held from now on.
 *
 * Return: NULL, or the lowest counter whose limit does not allow it; then nothing is charged.
 */
static inline struct gs_counter *gs_counter_try_memory(struct gs_counter *counter, __u32 gpu,
						       __u64 bytes)
{
	struct gs_counter *at, *refuses;

	for (at = counter; at; at = at->parent) {
		if (!gs_counter_take(&at->memory[gpu], bytes, gs_counter_memory_max(at, gpu)))
			break;
	}
	refuses = at;
	for (at = counter; refuses && at != refuses; at = at->parent)
		atomic64_sub((__s64)bytes, &at->memory[gpu]);
	return refuses;
}

/**
 * gs_counter_add_memory() - Charge memory whatever the limits are, or take a charge back.
 * @counter: That of the tenant.
 * @end: The counter above it at which to stop, NULL for none.
 * @gpu: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: How much more is charged from now on; less, modulo 2^64, if it is taken back. Of what is
 *	held gs_counter_hold_memory() comes first then.
 */
static inline void gs_counter_add_memory(struct gs_counter *counter, const struct gs_counter *end,
					 __u32 gpu, __u64 bytes)
{
	for (; counter != end; counter = counter->parent)
		atomic64_add((__s64)bytes, &counter->memory[gpu]);
}

/**
 * gs_counter_hold_memory() - Count memory that the driver has given or taken back.
 * @counter: That of the tenant.
 * @end: The counter above it at which to stop, NULL for none.
 * @bytes: How much more is held from now on, which is charged already; less, modulo 2^64, if memory
 *	is given back.
 */
static inline void gs_counter_hold_memory(struct gs_counter *counter, const struct gs_counter *end,
					  __u64 bytes)
{
	for (; counter != end; counter = counter->parent)
		gs_counter_raise(&counter->memory_peak,
				 atomic64_add_return((__s64)bytes, &counter->memory_current));
}

/**
 * gs_counter_try_context() - Charge a context, up to the root.
 * @counter: That of the tenant.
 *
 * Return: See gs_counter_try_memory().
 */
static inline struct gs_counter *gs_counter_try_context(struct gs_counter *counter)
{
	struct gs_counter *at, *refuses;

	for (at = counter; at; at = at->parent) {
		if (!gs_counter_take(&at->contexts, 1, READ_ONCE(at->contexts_max)))
			break;
	}
	refuses = at;
	for (at = counter; refuses && at != refuses; at = at->parent)
		atomic64_dec(&at->contexts);
	return refuses;
}

/* Counts contexts that are there already, as gs_counter_add_memory() does. */
static inline void gs_counter_add_contexts(struct gs_counter *counter, const struct gs_counter *end,
					   __s64 contexts)
{
	for (; counter != end; counter = counter->parent)
		atomic64_add(contexts, &counter->contexts);
}

/* Counts a refusal, of which all above learn as of cgroup v2's memory.events. */
static inline void gs_counter_refused_memory(struct gs_counter *counter)
{
	for (; counter; counter = counter->parent)
		atomic64_inc(&counter->memory_refused);
}

static inline void gs_counter_refused_context(struct gs_counter *counter)
{
	for (; counter; counter = counter->parent)
		atomic64_inc(&counter->contexts_refused);
}

static inline void gs_counter_refused_control(struct gs_counter *counter)
{
	for (; counter; counter = counter->parent)
		atomic64_inc(&counter->controls_refused);
}

/**
 * gs_counter_common() - Find the lowest counter that is above two, or one of them.
 * @one: A counter.
 * @other: Another counter, or the same.
 *
 * Return: The counter, or NULL if they have none in common. What moves from one to the other
 * changes nothing from there on up.
 */
static inline struct gs_counter *gs_counter_common(struct gs_counter *one, struct gs_counter *other)
{
	struct gs_counter *at;

	for (; one; one = one->parent) {
		for (at = other; at; at = at->parent) {
			if (at == one)
				return one;
		}
	}
	return NULL;
}

/**
 * gs_counter_room() - How much memory may be held at the most on a GPU?
 * @counter: That of the tenant.
 * @gpu: The GPU, below GPUSHARE_MAX_GPUS.
 *
 * Return: The least of the limits up to the root, GS_MEMORY_NONE if there is none.
 */
static inline __u64 gs_counter_room(const struct gs_counter *counter, __u32 gpu)
{
	__u64 least = GS_MEMORY_NONE;

	for (; counter; counter = counter->parent) {
		__u64 max = gs_counter_memory_max(counter, gpu);

		if (max < least)
			least = max;
	}
	return least;
}

/* Is there a limit of memory on any GPU, here or above? */
static inline bool gs_counter_is_limited(const struct gs_counter *counter)
{
	__u32 gpu;

	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		if (gs_counter_room(counter, gpu) != GS_MEMORY_NONE)
			return true;
	}
	return false;
}

#endif /* GPUSHARE_COUNTER_H */
