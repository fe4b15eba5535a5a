// SPDX-License-Identifier: GPL-2.0
/* Objects that are freed. Their memory is given back only when the driver has said so. */
#include "compat/version.h"
#include "driver/call.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "state/client.h"

static noinline void gs_freed_event(const struct gs_call *call)
{
	struct gpushare_event event gs_uninitialized;

	gs_process_open(call->process);
	gs_event_init(&event, GPUSHARE_EVENT_OBJECT_FREED, &call->process->id);
	event.object.client = call->rm.client;
	event.object.object = call->rm.object;
	event.object.fd = -1;
	gs_event_send(&event);
}

/**
 * gs_filter_free() - Free an object or a client.
 * @call: A call of kind FREE.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_free(struct gs_call *call)
{
	struct gs_object *object;
	struct gs_answer answer gs_uninitialized;
	int err = gs_call_enter_in_order(call);

	if (err)
		return gs_call_not_entered(call, err);
	mutex_unlock(&gs_lock);

	gs_call_driver(call, &answer);

	mutex_lock(&gs_lock);
	if (answer.is_done && call->client) {
		if (call->rm.object == call->rm.client) {
			gs_client_destroy(call->client);
		} else {
			object = gs_object_find(call->client, call->rm.object);
			if (object)
				gs_object_destroy(object);
		}
	}
	if (answer.is_done && (!call->process->is_opened || gs_stream_is_open()))
		gs_freed_event(call);
	gs_call_leave(call);
	return answer.ret;
}
