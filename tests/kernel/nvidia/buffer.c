// SPDX-License-Identifier: GPL-2.0
/*
 * Event buffers. Every reader that is bound and enabled gets each record of the switch log in its
 * own ring, where the oldest are overwritten. A flush moves `put`.
 */
#include <linux/slab.h>

#include "standin.h"

void sn_log_switch(struct sn_group *group, u8 tag, u64 time)
{
	struct sn_gpu *gpu = group->object->gpu;
	struct gs_switch_record record = {
		.tag = tag,
		.seqno = gpu->next_seqno++,
		.context_id = group->object->handle,
		.pid = group->object->client->pid,
		.timestamp = time,
	};
	struct sn_buffer *buffer;

	list_for_each_entry(buffer, &gpu->buffers, in_gpu) {
		struct gs_switch_record *ring = buffer->records->pages;

		if (!buffer->is_bound || !buffer->is_enabled)
			continue;
		ring[buffer->put] = record;
		buffer->put = (buffer->put + 1) % buffer->count;
	}
}

void sn_buffer_publish(struct sn_buffer *buffer)
{
	struct gs_event_buffer_header *header = buffer->header->pages;

	/* This pairs with the reader's load of `put`: the records below it are whole. */
	smp_store_release(&header->put, buffer->put);
}

void sn_buffer_free(struct sn_buffer *buffer)
{
	list_del(&buffer->in_gpu);
	sn_memory_put(buffer->header);
	sn_memory_put(buffer->records);
	kfree(buffer);
}
