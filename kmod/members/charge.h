/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Video memory by tenant and GPU, and contexts by tenant. What an allocation takes is charged
 * before the driver is asked, so that two allocations at once cannot both take the last bytes. It
 * is given back when the driver refuses the allocation, or when the last object that holds it is
 * gone. The charge stays with the process that allocated, and so with the tenant of that process,
 * also while another process holds a duplicate. No function here needs a lock.
 */
#ifndef GPUSHARE_CHARGE_H
#define GPUSHARE_CHARGE_H

#include "members/process.h"

/**
 * struct gs_charge - Video memory, or a context, that one or more objects hold.
 * @refs: The number of objects: a duplicate holds the charge of its original.
 * @process: The process that allocated it, with a reference.
 * @instance: The GPU.
 * @contexts: 1 for a context, otherwise 0.
 * @is_held: The driver has given the memory.
 * @bytes: How much memory.
 */
struct gs_charge {
	refcount_t refs;
	struct gs_process *process;
	u32 instance;
	u32 contexts;
	bool is_held;
	u64 bytes;
};

static inline void gs_charge_init(struct gs_charge *charge, struct gs_process *process,
				  u32 instance, u32 contexts, u64 bytes)
{
	refcount_inc(&process->refs);
	refcount_set(&charge->refs, 1);
	charge->process = process;
	charge->instance = instance;
	charge->contexts = contexts;
	charge->is_held = false;
	charge->bytes = bytes;
}

/**
 * gs_charge_try() - Charge an allocation that is about to be made.
 * @charge: Out, with one reference if it fits.
 * @process: The process that allocates.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: What it asks for; ~0 for a number that the caller hides, which never fits.
 *
 * Return: 0, or -EDQUOT if it is more than the tenant, or one above it, may have; then nothing is
 * charged.
 */
static inline int gs_charge_try(struct gs_charge *charge, struct gs_process *process, u32 instance,
				u64 bytes)
{
	bool is_refused;

	if (bytes == ~0ULL)
		return -EDQUOT;
	bytes = gs_counter_charge_of(bytes);
	spin_lock(&process->lock);
	is_refused = gs_counter_try_memory(&process->tenant->counter, instance, bytes);
	if (!is_refused)
		process->memory[instance] += bytes;
	spin_unlock(&process->lock);
	if (is_refused)
		return -EDQUOT;
	gs_charge_init(charge, process, instance, 0, bytes);
	return 0;
}

/**
 * gs_charge_try_context() - Charge a context that is about to be made.
 * @charge: Out, with one reference if it may be made.
 * @process: The process that makes it.
 *
 * Return: 0, or -EDQUOT if the tenant, or one above it, has as many as it may have; then nothing is
 * charged.
 */
static inline int gs_charge_try_context(struct gs_charge *charge, struct gs_process *process)
{
	bool is_refused;

	spin_lock(&process->lock);
	is_refused = gs_counter_try_context(&process->tenant->counter);
	if (!is_refused)
		process->contexts++;
	spin_unlock(&process->lock);
	if (is_refused)
		return -EDQUOT;
	gs_charge_init(charge, process, 0, 1, 0);
	return 0;
}

/**
 * gs_charge_given() - Note that the driver has given what was charged.
 * @charge: A charge of what was asked for, which no other thread knows yet.
 * @bytes: What the driver says that it gave, 0 if it said nothing. It has given the memory, so this
 *	may pass the limit by what it rounds up.
 */
static inline void gs_charge_given(struct gs_charge *charge, u64 bytes)
{
	if (charge->contexts)
		return;
	if (!bytes || bytes == ~0ULL)
		bytes = charge->bytes;
	gs_process_got_memory(charge->process, charge->instance, charge->bytes, bytes);
	charge->bytes = bytes;
	charge->is_held = true;
}

/**
 * gs_charge_put() - Drop a reference, and with the last one give the memory back.
 * @charge: The charge.
 *
 * Return: True if it was the last one.
 */
static inline bool gs_charge_put(struct gs_charge *charge)
{
	if (!refcount_dec_and_test(&charge->refs))
		return false;
	if (charge->contexts)
		gs_process_lost_context(charge->process);
	else
		gs_process_lost_memory(charge->process, charge->instance, charge->bytes,
				       charge->is_held);
	gs_process_put(charge->process);
	return true;
}

#endif /* GPUSHARE_CHARGE_H */
