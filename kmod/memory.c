// SPDX-License-Identifier: GPL-2.0
/*
 * Video memory by tenant and GPU. What an allocation takes is charged before the driver is asked,
 * so that two at once cannot both take the last bytes, and given back when the driver refused it or
 * when the last object that holds it is gone. The charge stays with the process that allocated, and
 * so with that process's tenant, also while another process holds a duplicate.
 */
#include <linux/slab.h>

#include "rm_call.h"
#include "state.h"

static void gs_memory_add(struct gs_process *process, u32 instance, u64 bytes)
{
	process->memory[instance] += bytes;
	process->tenant->memory[instance] += bytes;
}

/**
 * gs_charge_try() - charge an allocation that is about to be made
 * @process: that makes it
 * @charge: zeroed; on success it has one reference, and one on @process
 * @instance: of the GPU, below GPUSHARE_MAX_GPUS
 * @bytes: ~0 for a number that the caller hides, which never fits
 *
 * Return: 0, or -EDQUOT when it is more than the tenant may have; nothing is charged then.
 */
int gs_charge_try(struct gs_process *process, struct gs_charge *charge, u32 instance, u64 bytes)
{
	struct gs_tenant *tenant = process->tenant;

	lockdep_assert_held(&gs_lock);
	if (bytes == ~0ULL ||
	    !gs_budget_fits(tenant->memory[instance], bytes, tenant->settings.memory_max))
		return -EDQUOT;
	process->refs++;
	*charge = (struct gs_charge){
		.refs = 1,
		.process = process,
		.instance = instance,
		.bytes = bytes,
	};
	gs_memory_add(process, instance, bytes);
	return 0;
}

/**
 * gs_charge_grow() - correct a charge to what the driver gave
 * @charge: made with less
 * @bytes: what the driver says; less than charged changes nothing. The memory has been given, so
 *	this may pass the limit
 */
void gs_charge_grow(struct gs_charge *charge, u64 bytes)
{
	lockdep_assert_held(&gs_lock);
	if (bytes <= charge->bytes || bytes == ~0ULL)
		return;
	gs_memory_add(charge->process, charge->instance, bytes - charge->bytes);
	charge->bytes = bytes;
}

/**
 * gs_charge_put() - one object fewer holds it
 * @charge: freed with the last reference, after its bytes have been given back; NULL is ignored
 */
void gs_charge_put(struct gs_charge *charge)
{
	lockdep_assert_held(&gs_lock);
	if (!charge || --charge->refs)
		return;
	gs_memory_add(charge->process, charge->instance, -charge->bytes);
	gs_process_put(charge->process);
	kfree(charge);
}

/**
 * gs_memory_move() - what a process holds counts for another tenant from now on
 * @process: still in its present tenant
 * @to: the new one
 */
void gs_memory_move(struct gs_process *process, struct gs_tenant *to)
{
	u32 i;

	lockdep_assert_held(&gs_lock);
	for (i = 0; i < GPUSHARE_MAX_GPUS; i++) {
		process->tenant->memory[i] -= process->memory[i];
		to->memory[i] += process->memory[i];
	}
}
