// SPDX-License-Identifier: GPL-2.0
/*
 * Whose turn it is. Calls that make or free something of a client are made one after the other, so
 * that what is remembered changes in the order in which the driver did it. A call that comes alone,
 * as nearly all do, takes gs_lock once before the driver is asked and once after.
 */
#include <linux/slab.h>

#include "filter.h"

/* The client that a handle means, with a reference. */
static struct gs_client *gs_call_client(const struct gs_call *call, u32 handle)
{
	struct gs_client *client = gs_client_find(handle, call->file, call->process);

	if (client)
		client->refs++;
	return client;
}

static void gs_call_put(struct gs_call *call)
{
	lockdep_assert_held(&gs_lock);
	if (call->client)
		gs_client_put(call->client);
	if (call->source)
		gs_client_put(call->source);
	if (call->object)
		gs_object_put(call->object);
	if (call->parent)
		gs_object_put(call->parent);
	kfree(call->adopted);
	gs_process_put(call->process);
}

/**
 * gs_call_enter() - begin with a call
 * @call: of any kind
 *
 * Return: 0 with gs_lock held, or -ENOMEM.
 */
int gs_call_enter(struct gs_call *call)
{
	mutex_lock(&gs_lock);
	call->process = gs_process_of_current();
	if (call->process)
		return 0;
	mutex_unlock(&gs_lock);
	return -ENOMEM;
}

/* The clients that a call is about. For one that is not known memory is got, without gs_lock. */
static int gs_call_find_clients(struct gs_call *call)
{
	call->client = gs_call_client(call, call->rm.client);
	if (!call->client && call->object) {
		mutex_unlock(&gs_lock);
		call->adopted = gs_client_new();
		mutex_lock(&gs_lock);
		if (!call->adopted)
			return -ENOMEM;
		call->client = gs_call_client(call, call->rm.client);
	}
	if (call->rm.kind == RM_CALL_DUP && call->rm.source_client != call->rm.client)
		call->source = gs_call_client(call, call->rm.source_client);
	return 0;
}

/* Of two the one at the lower address is waited for first, everywhere. */
static int gs_order_wait(struct gs_call *call)
{
	struct gs_client *first = call->client ?: call->source;
	struct gs_client *second = call->client ? call->source : NULL;

	if (second && second < first)
		swap(first, second);
	if (mutex_lock_killable(&first->order))
		return -EINTR;
	if (second && mutex_lock_killable_nested(&second->order, SINGLE_DEPTH_NESTING)) {
		mutex_unlock(&first->order);
		return -EINTR;
	}
	return 0;
}

static bool gs_order_try(struct gs_call *call)
{
	if (call->client && !mutex_trylock(&call->client->order))
		return false;
	if (!call->source || mutex_trylock(&call->source->order))
		return true;
	if (call->client)
		mutex_unlock(&call->client->order);
	return false;
}

/**
 * gs_call_enter_in_order() - begin with a call when it is its turn
 * @call: of kind ALLOC or DUP, with its object, or FREE
 *
 * Return: 0 with gs_lock held, -ENOMEM, or -EINTR when the caller was killed meanwhile. After an
 * error there is no object any more.
 */
int gs_call_enter_in_order(struct gs_call *call)
{
	int err = gs_call_enter(call);

	if (err) {
		if (call->object)
			gs_object_free(call->object);
		return err;
	}
	err = gs_call_find_clients(call);
	if (err)
		goto put;
	if (!gs_order_try(call)) {
		mutex_unlock(&gs_lock);
		err = gs_order_wait(call);
		mutex_lock(&gs_lock);
		if (err)
			goto put;
	}
	if (call->object && call->client)
		call->parent = gs_object_find(call->client, call->rm.parent);
	if (call->parent)
		call->parent->refs++;
	return 0;

put:
	gs_call_put(call);
	mutex_unlock(&gs_lock);
	return err;
}

/**
 * gs_call_leave() - it is done
 * @call: entered; gs_lock is held, and not any more after
 */
void gs_call_leave(struct gs_call *call)
{
	if (call->client)
		mutex_unlock(&call->client->order);
	if (call->source)
		mutex_unlock(&call->source->order);
	gs_call_put(call);
	mutex_unlock(&gs_lock);
}
