// SPDX-License-Identifier: GPL-2.0
/* Objects that are made: clients, what is remembered below them, duplicates; video memory's limit. */
#include <linux/slab.h>

#include "filter.h"
#include "stream.h"

/**
 * struct gs_making - what is prepared before the driver is asked for an object
 * @object: to be remembered
 * @charge: for video memory, else NULL; holds the memory once it is charged
 * @adopted: for a client that was there before us, when it is not known
 */
struct gs_making {
	struct gs_object *object;
	struct gs_charge *charge;
	struct gs_client *adopted;
};

static bool gs_making_prepare(struct gs_making *making, bool with_charge)
{
	making->object = gs_object_new();
	making->adopted = gs_client_new();
	making->charge = with_charge ? kzalloc(sizeof(*making->charge), GFP_KERNEL_ACCOUNT) : NULL;
	return making->object && making->adopted && (making->charge || !with_charge);
}

/* Frees what has found no place; members that have are NULL. */
static void gs_making_drop(struct gs_making *making)
{
	kfree(making->object);
	kfree(making->adopted);
	kfree(making->charge);
}

/**
 * gs_filter_client() - a client is to be made
 * @call: of kind ALLOC, of a root class
 *
 * Return: of the ioctl.
 */
long gs_filter_client(struct gs_call *call)
{
	struct gs_client *client = gs_client_new();
	struct gpushare_event event;
	struct gs_answer answer;
	s32 fd;

	if (!client)
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	gs_call_driver(call, &answer);
	if (!answer.is_made) {
		kfree(client);
		return answer.ret;
	}
	fd = gs_call_fd(call);
	mutex_lock(&gs_lock);
	gs_client_add(client, call->process, call->file, answer.rm.object, fd);
	gs_process_open(call->process);
	gs_event_init(&event, GPUSHARE_EVENT_CLIENT_CREATED, call->process);
	event.object.client = answer.rm.object;
	event.object.fd = fd;
	gs_event_send(&event);
	mutex_unlock(&gs_lock);
	return answer.ret;
}

static void gs_memory_refused_event(struct gs_call *call, u32 instance, u64 bytes)
{
	struct gs_tenant *tenant = call->process->tenant;
	struct gpushare_event event;
	u64 repeats;

	if (!gs_refusal_is_reported(call->process, &repeats))
		return;
	gs_process_open(call->process);
	gs_event_init(&event, GPUSHARE_EVENT_MEMORY_REFUSED, call->process);
	event.memory_refused.client = call->rm.client;
	event.memory_refused.parent = call->rm.parent;
	event.memory_refused.class_id = call->rm.class_id;
	event.memory_refused.instance = instance;
	event.memory_refused.bytes = bytes;
	event.memory_refused.current_bytes = tenant->memory[instance];
	event.memory_refused.max_bytes = tenant->settings.memory_max;
	event.memory_refused.repeats = repeats;
	gs_event_send(&event);
}

/* What a memory object takes; ~0 when the caller hides it. */
static u64 gs_memory_bytes(const struct gs_call *call)
{
	if (call->rm.has_inline_size)
		return call->rm.bytes;
	if (call->rm.is_opaque)
		return ~0ULL;
	return rm_memory_round(call->params.memory.size, call->params.memory.attr);
}

/* What the driver gave, read from where it answers. */
static u64 gs_memory_answered(struct gs_call *call, const struct gs_answer *answer)
{
	if (call->rm.has_inline_size)
		return answer->rm.bytes;
	return gs_call_read_params(call) ? 0 : call->params.memory.size;
}

static bool gs_memory_is_video(const struct gs_call *call)
{
	if (!rm_is_memory_class(call->rm.class_id))
		return false;
	if (call->rm.has_inline_size)
		return call->rm.is_video;
	return rm_memory_is_video(call->rm.class_id, call->params.memory.attr);
}

/*
 * The GPU of a new object: a device names it, all others are on their parent's. Without parameters
 * the driver takes zeros.
 */
static u32 gs_call_instance(const struct gs_call *call)
{
	if (call->rm.class_id == RM_CLASS_DEVICE)
		return min_t(u32, call->params.device.device_id, GPUSHARE_MAX_GPUS - 1);
	return gs_object_instance(call->client, call->rm.parent);
}

/* Remembers what the driver made below its client; one that was there before us becomes known. */
static void gs_making_add(struct gs_making *making, const struct gs_call *call, u32 parent,
			  u32 handle)
{
	struct gs_client *client = call->client;

	if (!client || client->is_dead) {
		gs_client_add(making->adopted, call->process, call->file, call->rm.client, -1);
		making->adopted = NULL;
		client = gs_client_find(call->rm.client, call->file, call->process);
	}
	making->object->charge = making->charge;
	making->charge = NULL;
	gs_object_add(making->object, client, parent, handle);
	making->object = NULL;
}

static void gs_object_made(struct gs_call *call, struct gs_making *making, u32 handle, u64 bytes)
{
	struct gs_object *object = making->object;
	struct gpushare_event event;

	object->bytes = bytes;
	if (making->charge)
		gs_charge_grow(making->charge, bytes);
	gs_making_add(making, call, call->rm.parent, handle);
	gs_object_event(&event, call->process, call->rm.client, object);
	if (!event.kind)
		return;
	gs_process_open(call->process);
	gs_event_send(&event);
}

/**
 * gs_filter_alloc() - an object is to be made
 * @call: of kind ALLOC, of a class that is remembered
 *
 * Return: of the ioctl.
 */
long gs_filter_alloc(struct gs_call *call)
{
	struct gs_making making;
	struct gs_answer answer;
	bool is_video;
	u64 bytes = 0;
	int err = 0;

	if (gs_call_read_params(call))
		return -EFAULT;
	is_video = gs_memory_is_video(call);
	if (!gs_making_prepare(&making, is_video)) {
		gs_making_drop(&making);
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	}
	making.object->class_id = call->rm.class_id;
	making.object->is_video = is_video;
	making.object->fd = -1;
	if (call->rm.class_id == RM_CLASS_GROUP) {
		making.object->engine_type = call->params.group.engine_type;
		making.object->fd = gs_call_fd(call);
	}
	mutex_lock(&gs_lock);
	making.object->instance = gs_call_instance(call);
	if (is_video) {
		bytes = gs_memory_bytes(call);
		err = gs_charge_try(call->process, making.charge, making.object->instance, bytes);
		if (err) {
			call->process->tenant->memory_refused++;
			gs_memory_refused_event(call, making.object->instance, bytes);
		}
	}
	mutex_unlock(&gs_lock);
	if (err) {
		gs_making_drop(&making);
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	}

	gs_call_driver(call, &answer);

	if (answer.is_made && rm_is_memory_class(call->rm.class_id))
		bytes = gs_memory_answered(call, &answer);
	mutex_lock(&gs_lock);
	if (answer.is_made) {
		gs_object_made(call, &making, answer.rm.object, bytes);
	} else {
		gs_charge_put(making.charge);
		making.charge = NULL;
	}
	mutex_unlock(&gs_lock);
	gs_making_drop(&making);
	return answer.ret;
}

/**
 * gs_filter_dup() - a second name is to be made for an object, of another client perhaps
 * @call: of kind DUP
 *
 * The duplicate keeps memory alive when the original is freed, so it holds the same charge.
 *
 * Return: of the ioctl.
 */
long gs_filter_dup(struct gs_call *call)
{
	struct gs_object *source;
	struct gs_client *of;
	struct gs_making making;
	struct gs_answer answer;

	if (!gs_making_prepare(&making, false)) {
		gs_making_drop(&making);
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	}
	mutex_lock(&gs_lock);
	of = call->rm.source_client == call->rm.client ? call->client : call->source;
	source = of ? gs_object_find(of, call->rm.source_object) : NULL;
	if (source) {
		making.object->class_id = source->class_id;
		making.object->instance = source->instance;
		making.object->engine_type = source->engine_type;
		making.object->is_scheduled = source->is_scheduled;
		making.object->is_sliced = source->is_sliced;
		making.object->is_video = source->is_video;
		making.object->bytes = source->bytes;
		making.object->fd = source->fd;
		making.charge = source->charge;
		if (making.charge)
			making.charge->refs++;
	}
	mutex_unlock(&gs_lock);

	gs_call_driver(call, &answer);

	if (source) {
		mutex_lock(&gs_lock);
		if (answer.is_made) {
			gs_making_add(&making, call, call->rm.parent, answer.rm.object);
		} else {
			gs_charge_put(making.charge);
			making.charge = NULL;
		}
		mutex_unlock(&gs_lock);
	}
	gs_making_drop(&making);
	return answer.ret;
}
