// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that goes into a DMA buffer, which may outlive the program's own object of it:
 * state/buffered.h.
 */
#include "driver/call.h"
#include "driver/dma_buf.h"
#include "filter/filter.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "state/buffered.h"
#include "state/client.h"

/* Is the client that is named known, and somebody else's? The driver would not mind. */
static bool gs_call_names_anothers_client(const struct gs_call *call)
{
	const struct gs_client *client;
	bool is_anothers;

	mutex_lock(&gs_lock);
	client = gs_client_find(call->rm.client, NULL, NULL);
	is_anothers = client && client != call->client && !client->is_unsure;
	mutex_unlock(&gs_lock);
	return is_anothers;
}

/**
 * gs_filter_dma_buf() - Let memory go into a DMA buffer.
 * @call: A call of kind EXPORT.
 *
 * Where it cannot be watched it is refused to a tenant with a limit.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_dma_buf(struct gs_call *call)
{
	struct gs_buffering buffering;
	long ret;
	int err;

	if (!gs_dma_buf_is_watched())
		return gs_filter_display() ? gs_call_refuse(call, RM_ERR_NO_MEMORY) :
					     gs_call_original(call);
	err = gs_buffering_begin(&buffering, call->rm.count);
	if (err)
		return gs_call_not_entered(call, err);
	err = gs_call_enter_in_order(call);
	if (err) {
		gs_buffering_end(&buffering);
		return gs_call_not_entered(call, err);
	}
	if (gs_call_names_anothers_client(call)) {
		ret = gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	} else {
		call->buffering = &buffering;
		ret = gs_call_driver_unpinned(call);
		gs_buffering_charge(&buffering, &call->client->objects);
	}
	gs_call_leave_in_order(call);
	gs_buffering_end(&buffering);
	return ret;
}
