// SPDX-License-Identifier: GPL-2.0
#include "compat/version.h"
#include "rm/rm_classes.h"
#include "state/report.h"

/**
 * gs_report_client() - Report that a client was made.
 * @process: The process that made it.
 * @handle: Its handle.
 * @fd: The descriptor that it was made on, -1 if unknown.
 * @flags: The flags of the event.
 */
void gs_report_client(const struct gs_process *process, u32 handle, s32 fd, u32 flags)
{
	struct gpushare_event event gs_uninitialized;

	gs_event_init(&event, GPUSHARE_EVENT_CLIENT_CREATED);
	event.flags = flags;
	event.object.client = handle;
	event.object.fd = fd;
	gs_event_send(&event, &process->id);
}

/**
 * gs_object_event() - Fill in the event of an object's creation.
 * @event: Out: its kind is 0 for a class that has none.
 * @client: The handle of the client.
 * @object: The object.
 */
void gs_object_event(struct gpushare_event *event, u32 client, const struct gs_object *object)
{
	gs_event_init(event, 0);
	event->object.client = client;
	event->object.parent = object->parent_handle;
	event->object.object = object->handle;
	event->object.class_id = object->class_id;
	event->object.fd = -1;
	if (object->class_id == RM_CLASS_DEVICE) {
		event->kind = GPUSHARE_EVENT_DEVICE_CREATED;
		event->object.instance = object->instance;
	} else if (object->class_id == RM_CLASS_GROUP) {
		event->kind = GPUSHARE_EVENT_GROUP_CREATED;
		event->object.engine_type = object->engine_type;
		event->object.fd = object->fd;
	} else if (rm_is_channel_class(object->class_id)) {
		event->kind = GPUSHARE_EVENT_CHANNEL_CREATED;
	} else if (object->is_video) {
		event->kind = GPUSHARE_EVENT_MEMORY_ALLOCATED;
		event->object.bytes = object->bytes;
		event->flags = GPUSHARE_EVENT_VIDEO;
	}
}

static void gs_object_replay(const struct gs_client *client, const struct gs_object *object)
{
	struct gpushare_event event gs_uninitialized;

	gs_object_event(&event, client->handle, object);
	event.flags |= GPUSHARE_EVENT_REPLAYED;
	if (event.kind)
		gs_event_send(&event, &client->process->id);
}

/* Reports all objects below a client, parents first. */
static void gs_objects_replay(struct gs_client *client)
{
	struct list_head *roots = &client->objects.roots, *level = roots, *at = level->next;
	struct gs_object *object;

	lockdep_assert_held(&client->objects.lock);
	for (;;) {
		while (at == level) { /* At the end of a level it goes on behind the parent. */
			if (level == roots)
				return;
			object = container_of(level, struct gs_object, children);
			level = object->parent ? &object->parent->children : roots;
			at = object->sibling.next;
		}
		object = list_entry(at, struct gs_object, sibling);
		gs_object_replay(client, object);
		level = &object->children;
		at = level->next;
	}
}

static void gs_client_replay(struct gs_client *client)
{
	if (client->is_unsure || client->is_dead)
		return;
	mutex_lock(&client->objects.lock);
	gs_report_client(client->process, client->handle, client->fd, GPUSHARE_EVENT_REPLAYED);
	gs_objects_replay(client);
	mutex_unlock(&client->objects.lock);
}

/**
 * gs_replay() - Report every living process that uses the driver, and everything that it has.
 */
void gs_replay(void)
{
	struct gs_process *process;
	struct gs_client *client;

	lockdep_assert_held(&gs_lock);
	list_for_each_entry(process, &gs_processes, node) {
		if (!process->is_opened)
			continue;
		gs_process_send_opened(process, GPUSHARE_EVENT_REPLAYED);
		list_for_each_entry(client, &process->clients, process_node)
			gs_client_replay(client);
	}
}
