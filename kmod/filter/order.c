// SPDX-License-Identifier: GPL-2.0
/*
 * The order of calls. Calls that make or free something of a client are made one after the other,
 * so that what is remembered changes in the order in which the driver did it. A call that comes
 * alone, as nearly all do, takes gs_lock once before the driver is asked and once after.
 */
#include <linux/fs.h>
#include <linux/slab.h>

#include "driver/call.h"
#include "filter/order.h"
#include "state/client.h"
#include "state/file.h"

static bool gs_call_may_be_about(const struct gs_call *call, const struct gs_client *client)
{
	if (client->file == call->holder)
		return true;
	return call->holder == call->file && client->process == call->process;
}

/*
 * Finds the client that is called on, and takes a reference. Only the file or the process that made
 * it may call on it, and the driver refuses all others. Those do not take turns with it: otherwise
 * a program could name another's client, keep the driver from reading on, and so keep the other
 * program waiting.
 */
static struct gs_client *gs_call_own_client(struct gs_call *call)
{
	struct gs_client *client;

	call->holder = gs_file_holder(call->file);
	client = gs_client_find(call->rm.client, call->holder, call->process);
	if (!client || !gs_call_may_be_about(call, client))
		client = gs_client_find_unsure(call->rm.client, call->holder);
	if (client)
		client->refs++;
	return client;
}

/*
 * Is a call about a client that its file cannot speak for? The driver refuses it, unless it knows
 * the file to be registered to another one than we do. All clients that it may then mean are known.
 */
static bool gs_call_is_astray(const struct gs_call *call)
{
	return call->holder != call->file &&
	       (gs_file_is_seen(call->holder) ||
		gs_client_find(call->rm.client, call->holder, call->process));
}

/*
 * Finds the client of what is to be duplicated. An unsure one has no video memory: memory is below
 * a device, and the call that made the device has acknowledged the client. On files other than the
 * control file the driver refuses a duplicate, but that may take it long.
 */
static struct gs_client *gs_call_source(const struct gs_call *call)
{
	struct gs_client *client;

	if (call->rm.kind != RM_CALL_DUP || call->rm.source_client == call->rm.client ||
	    !gs_file_is_control(call->file))
		return NULL;
	client = gs_client_find(call->rm.source_client, call->file, call->process);
	if (client)
		client->refs++;
	return client;
}

/* Forgets a client that the driver did not know, if no other call is about it. */
static noinline void gs_call_put_unsure(struct gs_client *client)
{
	if (client->refs == 2)
		gs_client_destroy(client);
	gs_client_put(client);
}

static __always_inline void gs_call_put_client(struct gs_client *client)
{
	if (unlikely(client->is_unsure))
		gs_call_put_unsure(client);
	else
		gs_client_put(client);
}

/* Puts what few calls have. */
static noinline void gs_call_put_more(struct gs_call *call)
{
	if (call->source)
		gs_client_put(call->source);
	kfree(call->new_client);
}

static __always_inline void gs_call_put(struct gs_call *call)
{
	lockdep_assert_held(&gs_lock);
	if (call->client)
		gs_call_put_client(call->client);
	if (call->object)
		gs_object_put(call->object);
	if (call->parent)
		gs_object_put(call->parent);
	if (call->source || call->new_client)
		gs_call_put_more(call);
	if (call->process)
		gs_process_put(call->process);
}

/**
 * gs_call_enter() - Begin with a call.
 * @call: A call of any kind.
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

/* Remembers a client that is not known at once, so that calls on it take turns. */
static noinline int gs_call_adopt(struct gs_call *call)
{
	struct gs_client *client;

	mutex_unlock(&gs_lock);
	client = gs_client_new();
	mutex_lock(&gs_lock);
	if (!client)
		return -ENOMEM;
	call->client = gs_call_own_client(call);
	if (call->client) {
		kfree(client);
		return 0;
	}
	gs_client_adopt(client, call->process, call->holder, call->rm.client);
	call->client = client;
	client->refs++;
	return 0;
}

/* Finds the clients that a call is about. gs_lock may be let go of meanwhile. */
static int gs_call_find_clients(struct gs_call *call)
{
	if (!call->client)
		call->client = gs_call_own_client(call);
	if (!call->client && gs_call_is_astray(call))
		return -EPERM;
	if (!call->client && call->object && gs_call_adopt(call))
		return -ENOMEM;
	call->source = gs_call_source(call);
	return 0;
}

/* Of two orders neither is held while the other one is waited for, which may take long. */
static int gs_order_wait(struct gs_call *call)
{
	struct gs_client *one = call->client ?: call->source;
	struct gs_client *other = call->client ? call->source : NULL;

	for (;;) {
		if (mutex_lock_killable(&one->order))
			return -EINTR;
		if (!other || mutex_trylock(&other->order))
			return 0;
		mutex_unlock(&one->order);
		swap(one, other);
	}
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

/*
 * Finds the caller and its client by one look into one table, if the client was made on this file
 * and by this process, as it nearly always was.
 */
static bool gs_call_find_own(struct gs_call *call)
{
	struct gs_client *client = gs_client_on(call->rm.client, call->file);

	if (!client || !gs_process_is_current(client->process))
		return false;
	client->refs++;
	refcount_inc(&client->process->refs);
	call->client = client;
	call->process = client->process;
	return true;
}

/* Finds the process and the clients, and a record for what is to be made. */
static int gs_call_find(struct gs_call *call)
{
	bool is_own;

	if (call->rm.kind != RM_CALL_FREE) {
		call->object = gs_object_get();
		if (!call->object)
			return -ENOMEM;
	}
	is_own = gs_call_find_own(call);
	if (is_own && call->rm.kind != RM_CALL_DUP)
		return 0;
	if (!is_own)
		call->process = gs_process_of_current();
	if (!call->process)
		return -ENOMEM;
	return gs_call_find_clients(call);
}

static void gs_order_end(struct gs_call *call)
{
	if (call->client)
		mutex_unlock(&call->client->order);
	if (call->source)
		mutex_unlock(&call->source->order);
}

/*
 * Waits for the turn of a call; gs_lock is let go of meanwhile. If the client was freed before it
 * was our turn, another client may have its handle by now, so the clients are looked up again.
 */
static noinline int gs_call_wait(struct gs_call *call)
{
	int err;

	do {
		mutex_unlock(&gs_lock);
		err = gs_order_wait(call);
		mutex_lock(&gs_lock);
		if (err)
			return err;
		if (!(call->client && call->client->is_dead) &&
		    !(call->source && call->source->is_dead))
			return 0;
		gs_order_end(call);
		if (call->client)
			gs_call_put_client(call->client);
		if (call->source)
			gs_client_put(call->source);
		call->client = NULL;
		call->source = NULL;
		err = gs_call_find_clients(call);
		if (err)
			return err;
	} while (!gs_order_try(call));
	return 0;
}

/**
 * gs_call_enter_in_order() - Begin with a call when it is its turn.
 * @call: A call of kind ALLOC, DUP or FREE.
 *
 * Return: 0 with gs_lock held, -ENOMEM, -EPERM if its file cannot speak for the client, or -EINTR
 * if the caller was killed meanwhile.
 */
int gs_call_enter_in_order(struct gs_call *call)
{
	int err;

	mutex_lock(&gs_lock);
	err = gs_call_find(call);
	if (!err && !gs_order_try(call))
		err = gs_call_wait(call);
	if (err)
		goto put;
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
 * gs_call_not_entered() - Say the error of gs_call_enter_in_order() as the driver would.
 * @call: The call, which the driver will not see.
 * @err: The error.
 *
 * Return: What the ioctl returns.
 */
long gs_call_not_entered(const struct gs_call *call, int err)
{
	switch (err) {
	case -ENOMEM:
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	case -EPERM:
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	default:
		return err;
	}
}

/**
 * gs_call_leave() - End with a call.
 * @call: A call that was entered. gs_lock is held, and is let go of.
 */
void gs_call_leave(struct gs_call *call)
{
	gs_order_end(call);
	gs_call_put(call);
	mutex_unlock(&gs_lock);
}
