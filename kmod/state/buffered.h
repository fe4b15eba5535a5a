/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory in DMA buffers. A program may export memory as a DMA buffer, for RDMA or for another
 * device. RM then takes a name of its own for the memory, which keeps it when the program has freed
 * it, until the buffer is released, so each such name holds the memory's charge, as a duplicate
 * does.
 *
 * The names come and go where probes see them (driver/dma_buf.c), which may not sleep. So they are
 * made beforehand, and what they hold is let go of a little later.
 */
#ifndef GPUSHARE_BUFFERED_H
#define GPUSHARE_BUFFERED_H

#include <linux/processor.h> /* list_bl.h wants it */
#include <linux/list.h>
#include <linux/list_bl.h>
#include <linux/llist.h>

#include "members/charge.h"

struct gs_objects;

/**
 * struct gs_buffered - A name that RM has for memory in a DMA buffer.
 * @hash: The place among those of RM; unhashed once RM has given the name back.
 * @node: The place in a list of the call that makes it.
 * @gone: The place among those that hold nothing any more.
 * @client: RM's own client.
 * @handle: The name there.
 * @memory: The handle of the memory, in the client of the program.
 * @charge: That of the memory, with a reference; NULL if it is not counted.
 * @is_making: The call that makes it is under way, and owns it.
 */
struct gs_buffered {
	struct hlist_bl_node hash;
	struct list_head node;
	struct llist_node gone;
	u32 client;
	u32 handle;
	u32 memory;
	struct gs_charge *charge;
	bool is_making;
};

/**
 * struct gs_buffering - The names that a call makes.
 * @spare: Those that it may still make.
 * @made: Those that RM has.
 */
struct gs_buffering {
	struct list_head spare;
	struct list_head made;
};

int gs_buffering_begin(struct gs_buffering *buffering, u32 count);
void gs_buffering_charge(struct gs_buffering *buffering, struct gs_objects *objects);
void gs_buffering_end(struct gs_buffering *buffering);

/* driver/dma_buf.c calls these. They do not sleep. */
bool gs_buffered_may_come(const struct gs_buffering *buffering);
void gs_buffered_came(struct gs_buffering *buffering, u32 memory, u32 client, u32 handle);
void gs_buffered_went(u32 client, u32 handle);

/* hook/hook.c calls this when nothing watches the driver any more. */
void gs_buffered_forget(void);

#endif /* GPUSHARE_BUFFERED_H */
