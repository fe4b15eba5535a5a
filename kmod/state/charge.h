/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Video memory by tenant and GPU, and contexts by tenant. What an allocation takes is charged
 * before the driver is asked, so that two allocations at once cannot both take the last bytes. It
 * is given back when the driver refuses the allocation, or when the last object that holds it is
 * gone. The charge stays with the process that allocated, and so with the tenant of that process,
 * also while another process holds a duplicate. All functions need gs_lock.
 */
#ifndef GPUSHARE_CHARGE_H
#define GPUSHARE_CHARGE_H

#include "state/process.h"
#include "state/settings.h"

/**
 * struct gs_charge - Video memory, or a context, that one or more objects hold.
 * @refs: The number of objects: a duplicate holds the charge of its original.
 * @process: The process that allocated it, with a reference.
 * @instance: The GPU.
 * @contexts: 1 for a context, otherwise 0.
 * @bytes: How much memory.
 */
struct gs_charge {
	unsigned int refs;
	struct gs_process *process;
	u32 instance;
	u32 contexts;
	u64 bytes;
};

/**
 * gs_charge_try() - Charge an allocation that is about to be made.
 * @charge: Out, with one reference if it fits.
 * @process: The process that allocates.
 * @instance: The GPU, below GPUSHARE_MAX_GPUS.
 * @bytes: What it asks for; ~0 for a number that the caller hides, which never fits.
 *
 * Return: 0, or -EDQUOT if it is more than the tenant may have; then nothing is charged.
 */
static inline int gs_charge_try(struct gs_charge *charge, struct gs_process *process, u32 instance,
				u64 bytes)
{
	struct gs_tenant *tenant = process->tenant;

	if (bytes == ~0ULL ||
	    !gs_budget_fits(tenant->memory[instance], bytes, tenant->settings.memory_max))
		return -EDQUOT;
	refcount_inc(&process->refs);
	*charge = (struct gs_charge){
		.refs = 1,
		.process = process,
		.instance = instance,
		.bytes = bytes,
	};
	gs_process_uses_memory(process, instance, bytes);
	return 0;
}

/**
 * gs_charge_try_context() - Charge a context that is about to be made.
 * @charge: Out, with one reference if it may be made.
 * @process: The process that makes it.
 *
 * Return: 0, or -EDQUOT if the tenant has as many as it may have; then nothing is charged.
 */
static inline int gs_charge_try_context(struct gs_charge *charge, struct gs_process *process)
{
	if (process->tenant->contexts >= process->tenant->contexts_max)
		return -EDQUOT;
	refcount_inc(&process->refs);
	*charge = (struct gs_charge){ .refs = 1, .process = process, .contexts = 1 };
	process->contexts++;
	process->tenant->contexts++;
	return 0;
}

/**
 * gs_charge_correct() - Make a charge what the driver gave.
 * @charge: A charge of what was asked for.
 * @bytes: What the driver says, 0 if it said nothing. The driver has given the memory, so this may
 *	pass the limit by what it rounds up.
 */
static inline void gs_charge_correct(struct gs_charge *charge, u64 bytes)
{
	if (!bytes || bytes == ~0ULL || bytes == charge->bytes)
		return;
	gs_process_uses_memory(charge->process, charge->instance, bytes - charge->bytes);
	charge->bytes = bytes;
}

/**
 * gs_charge_put() - Drop a reference, and with the last one give the memory back.
 * @charge: The charge.
 *
 * Return: True if it was the last one.
 */
static inline bool gs_charge_put(struct gs_charge *charge)
{
	if (--charge->refs)
		return false;
	gs_process_uses_memory(charge->process, charge->instance, -charge->bytes);
	charge->process->contexts -= charge->contexts;
	charge->process->tenant->contexts -= charge->contexts;
	gs_process_put(charge->process);
	return true;
}

#endif /* GPUSHARE_CHARGE_H */
