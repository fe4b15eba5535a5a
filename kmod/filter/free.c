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

	gs_event_init(&event, GPUSHARE_EVENT_OBJECT_FREED);
	event.object.client = call->rm.client;
	event.object.object = call->rm.object;
	event.object.fd = -1;
	gs_event_send(&event, &call->process->id);
}

/* Forgets an object of a client, and reports that, if it is to be reported, in the same order. */
static void gs_call_forget_object(struct gs_call *call)
{
	struct gs_objects *objects = &call->client->objects;
	struct gs_object *object;

	mutex_lock(&objects->lock);
	object = gs_object_find(objects, call->rm.object);
	if (object)
		gs_object_destroy(objects, object);
	if (gs_stream_is_open())
		gs_freed_event(call);
	mutex_unlock(&objects->lock);
}

/* Forgets what the driver has freed. */
static void gs_call_forget(struct gs_call *call)
{
	gs_process_open(call->process);
	if (call->client && call->rm.object != call->rm.client) {
		gs_call_forget_object(call);
		return;
	}
	if (call->client)
		gs_client_destroy(call->client);
	gs_freed_event(call);
}

/**
 * gs_filter_free() - Free an object or a client.
 * @call: A call of kind FREE.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_free(struct gs_call *call)
{
	struct gs_answer answer gs_uninitialized;
	int err = gs_call_enter_in_order(call);

	if (err)
		return gs_call_not_entered(call, err);

	gs_call_driver(call, &answer);

	if (answer.is_done)
		gs_call_forget(call);
	gs_call_leave_in_order(call);
	return answer.ret;
}
