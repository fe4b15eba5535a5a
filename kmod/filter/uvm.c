// SPDX-License-Identifier: GPL-2.0
/*
 * The names that nvidia_uvm takes for memory, and gives back: state/kept.h. Its calls come inside
 * the kernel, from the ioctls of a program or when that ends.
 */
#include "driver/divert.h"
#include "filter/filter.h"
#include "state/kept.h"

/**
 * gs_filter_uvm_dup() - Stand for nvUvmInterfaceDupMemory().
 * @device: What nvidia_uvm calls the GPU by.
 * @client: The client of the memory.
 * @memory: Its handle there.
 * @name: Out: the new name.
 * @info: Out: what RM says of the memory.
 *
 * Return: What the driver returns, or that there is no memory.
 */
unsigned long gs_filter_uvm_dup(unsigned long device, unsigned long client, unsigned long memory,
				unsigned long name, unsigned long info)
{
	struct gs_kept *kept = gs_kept_begin(client, memory);
	unsigned long status;

	if (!kept)
		return RM_ERR_NO_MEMORY;
	status = gs_divert_original_of_five(device, client, memory, name, info,
					    gs_sites[GS_SITE_UVM_DUP]);
	if ((u32)status == RM_OK)
		gs_kept_add(kept, device, *(const u32 *)name, (const struct rm_uvm_memory *)info);
	else
		gs_kept_free(kept);
	return status;
}

/**
 * gs_filter_uvm_free() - Stand for nvUvmInterfaceFreeDupedHandle().
 * @device: What nvidia_uvm calls the GPU by.
 * @name: The name that goes.
 *
 * Return: What the driver returns.
 */
unsigned long gs_filter_uvm_free(unsigned long device, unsigned long name)
{
	struct gs_kept *kept = gs_kept_take(device, name);
	unsigned long status = gs_divert_original(device, name, 0, gs_sites[GS_SITE_UVM_FREE]);

	gs_kept_free(kept);
	return status;
}
