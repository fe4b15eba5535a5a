/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that nvidia_uvm keeps. To map memory of RM's into a program's address space it takes a
 * second name for it inside the kernel (UVM_MAP_EXTERNAL_ALLOCATION), and that keeps the memory
 * when the program has freed it. So each such name holds the memory's charge, as a duplicate does.
 * All functions may sleep, and none may be called with gs_lock.
 */
#ifndef GPUSHARE_KEPT_H
#define GPUSHARE_KEPT_H

#include "members/charge.h"
#include "rm/rm_abi.h"

struct gs_client;
struct gs_object;

/**
 * struct gs_kept - A name that nvidia_uvm has for memory.
 * @hash: The place in the table.
 * @device: What nvidia_uvm calls the GPU by; it is compared only.
 * @handle: The name.
 * @client: While the name is made: the client of the memory, with a reference, or NULL.
 * @object: While the name is made: the memory, with a reference, or NULL if it is not known.
 * @charge: What it holds, with a reference, or NULL: @own_charge or that of @object.
 * @own_charge: The charge of video memory that is not known otherwise.
 */
struct gs_kept {
	struct hlist_node hash;
	unsigned long device;
	u32 handle;
	struct gs_client *client;
	struct gs_object *object;
	struct gs_charge *charge;
	struct gs_charge own_charge;
};

struct gs_kept *gs_kept_begin(u32 client, u32 memory);
void gs_kept_add(struct gs_kept *kept, unsigned long device, u32 handle,
		 const struct rm_uvm_memory *memory);
struct gs_kept *gs_kept_take(unsigned long device, u32 handle);
void gs_kept_free(struct gs_kept *kept);

/* hook/hook.c calls this when nothing watches the driver any more. */
void gs_kept_forget(void);

#endif /* GPUSHARE_KEPT_H */
