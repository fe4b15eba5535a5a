// SPDX-License-Identifier: GPL-2.0
/* Objects that are freed: only when the driver has said so is their memory given back. */
#include "filter.h"
#include "stream.h"

static void gs_freed_event(struct gs_call *call)
{
	struct gpushare_event event;

	gs_process_open(call->process);
	gs_event_init(&event, GPUSHARE_EVENT_OBJECT_FREED, call->process);
	event.object.client = call->rm.client;
	event.object.object = call->rm.object;
	event.object.fd = -1;
	gs_event_send(&event);
}

/**
 * gs_filter_free() - an object or a client is to be freed
 * @call: of kind FREE
 *
 * Return: of the ioctl.
 */
long gs_filter_free(struct gs_call *call)
{
	struct gs_client *client = call->client;
	struct gs_object *object;
	struct gs_answer answer;

	gs_call_driver(call, &answer);
	if (!answer.is_done)
		return answer.ret;
	mutex_lock(&gs_lock);
	if (client && call->rm.object == call->rm.client) {
		gs_client_destroy(client);
	} else if (client) {
		object = gs_object_find(client, call->rm.object);
		if (object)
			gs_object_destroy(object);
	}
	gs_freed_event(call);
	mutex_unlock(&gs_lock);
	return answer.ret;
}
