// SPDX-License-Identifier: GPL-2.0
/*
 * Objects that are freed. While the driver works the object is hidden: a new one that takes its
 * handle is another one. Only when the driver has said that it is gone is its memory given back.
 */
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
	struct gs_object *object = NULL;
	struct gs_client *client;
	struct gs_answer answer;
	bool is_client = call->rm.object == call->rm.client;

	mutex_lock(&gs_lock);
	client = gs_client_find(call->rm.client, call->file, call->process);
	if (client && !is_client)
		object = gs_object_find(client, call->rm.object);
	if (client && is_client) {
		client->refs++;
		client->is_hidden = true;
	} else if (object) {
		object->refs++;
		gs_object_hide(object);
	}
	mutex_unlock(&gs_lock);

	gs_call_driver(call, &answer);

	mutex_lock(&gs_lock);
	if (client && is_client) {
		if (answer.is_done)
			gs_client_destroy(client);
		client->is_hidden = false;
		gs_client_put(client);
	} else if (object) {
		if (answer.is_done)
			gs_object_destroy(object);
		else
			gs_object_show(object);
		gs_object_put(object);
	}
	if (answer.is_done)
		gs_freed_event(call);
	mutex_unlock(&gs_lock);
	return answer.ret;
}
