// SPDX-License-Identifier: GPL-2.0
/*
 * Video memory by tenant and GPU. What an allocation takes is charged before the driver is asked,
 * so that two at once cannot both take the last bytes, and given back when the driver refused it or
 * when the last object that holds it is gone. The charge stays with the process that allocated, and
 * so with that process's tenant, also while another process holds a duplicate.
 */
#include "rm/rm_call.h"
#include "state/state.h"

static void gs_memory_add(struct gs_process *process, u32 instance, u64 bytes)
{
	process->memory[instance] += bytes;
	process->tenant->memory[instance] += bytes;
}

/**
 * gs_charge_try() - charge an allocation that is about to be made
 * @process: that makes it
 * @object: that will hold it, of a GPU below GPUSHARE_MAX_GPUS
 * @bytes: ~0 for a number that the caller hides, which never fits
 *
 * Return: 0, or -EDQUOT when it is more than the tenant may have; nothing is charged then.
 */
int gs_charge_try(struct gs_process *process, struct gs_object *object, u64 bytes)
{
	struct gs_tenant *tenant = process->tenant;

	lockdep_assert_held(&gs_lock);
	if (bytes == ~0ULL ||
	    !gs_budget_fits(tenant->memory[object->instance], bytes, tenant->settings.memory_max))
		return -EDQUOT;
	process->refs++;
	object->refs++;
	object->own_charge = (struct gs_charge){
		.refs = 1,
		.process = process,
		.instance = object->instance,
		.bytes = bytes,
	};
	object->charge = &object->own_charge;
	gs_memory_add(process, object->instance, bytes);
	return 0;
}

/**
 * gs_charge_correct() - make a charge what the driver gave
 * @charge: made with what was asked for
 * @bytes: what the driver says, 0 when it said nothing. The memory has been given, so this may pass
 *	the limit, by what the driver rounds up
 */
void gs_charge_correct(struct gs_charge *charge, u64 bytes)
{
	lockdep_assert_held(&gs_lock);
	if (!bytes || bytes == ~0ULL || bytes == charge->bytes)
		return;
	gs_memory_add(charge->process, charge->instance, bytes - charge->bytes);
	charge->bytes = bytes;
}

/**
 * gs_object_drop_charge() - an object holds no memory any more
 * @object: may hold none. With the last that holds a charge its bytes are given back
 */
void gs_object_drop_charge(struct gs_object *object)
{
	struct gs_charge *charge = object->charge;

	lockdep_assert_held(&gs_lock);
	object->charge = NULL;
	if (!charge || --charge->refs)
		return;
	gs_memory_add(charge->process, charge->instance, -charge->bytes);
	gs_process_put(charge->process);
	gs_object_put(container_of(charge, struct gs_object, own_charge));
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
