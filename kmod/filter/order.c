// SPDX-License-Identifier: GPL-2.0
/*
 * The order of calls. Calls that make or free something of a client are made one after the other,
 * so that what is remembered changes in the order in which the driver did it. A call on a client of
 * the caller's own, as nearly all are, finds it without a lock that other processes take.
 */
#include <linux/fs.h>
#include <linux/slab.h>

#include "driver/call.h"
#include "filter/order.h"
#include "members/current.h"
#include "state/client.h"
#include "state/file.h"

static bool gs_call_may_be_about(const struct gs_call *call, const struct gs_client *client)
{
	if (client->file == call->holder)
		return true;
	return call->holder == call->file && client->process == call->process;
}

/* Takes a reference of a client that was found under gs_lock, or of none. */
static struct gs_client *gs_client_get(struct gs_client *client)
{
	if (client)
		refcount_inc(&client->refs); /* it was found, so it is not dead */
	return client;
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
	return gs_client_get(client);
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
	if (call->rm.kind != RM_CALL_DUP || call->rm.source_client == call->rm.client ||
	    !gs_file_is_control(call->file))
		return NULL;
	return gs_client_get(gs_client_find(call->rm.source_client, call->file, call->process));
}

/* Forgets a client that the driver did not know, if no other call is about it. */
static noinline void gs_call_put_unsure(struct gs_client *client)
{
	bool is_last;

	mutex_lock(&gs_lock); /* under which alone such a client is found */
	is_last =
		client->is_unsure && refcount_read(&client->refs) == 2 && gs_client_unlink(client);
	mutex_unlock(&gs_lock);
	if (is_last)
		gs_client_bury(client);
	gs_client_put(client);
}

static __always_inline void gs_call_put_client(struct gs_client *client)
{
	if (unlikely(READ_ONCE(client->is_unsure)))
		gs_call_put_unsure(client);
	else
		gs_client_put(client);
}

/* Puts what few calls have. */
static noinline void gs_call_put_more(struct gs_call *call)
{
	if (call->source)
		gs_client_put(call->source);
	gs_client_discard(call->new_client);
}

static __always_inline void gs_call_put(struct gs_call *call)
{
	if (call->object)
		gs_object_put(call->object);
	if (call->parent)
		gs_object_put(call->parent);
	if (call->client)
		gs_call_put_client(call->client);
	if (call->source || call->new_client)
		gs_call_put_more(call);
	if (call->process)
		gs_process_put(call->process);
}

/**
 * gs_call_enter() - Begin with a call, as its process.
 * @call: A call of any kind.
 *
 * Return: 0 or -ENOMEM.
 */
int gs_call_enter(struct gs_call *call)
{
	mutex_lock(&gs_lock);
	call->process = gs_process_of_current();
	mutex_unlock(&gs_lock);
	return call->process ? 0 : -ENOMEM;
}

/**
 * gs_call_find_own() - Find the caller and its client, if the client was made on this file and by
 * this process, as it nearly always was.
 * @call: A call of any kind.
 *
 * Return: True if it was.
 */
bool gs_call_find_own(struct gs_call *call)
{
	struct gs_process *process;
	struct gs_client *client;
	bool is_own = false;

	rcu_read_lock();
	client = gs_client_on(call->rm.client, call->file);
	if (!client)
		goto unlock;
	process =
		READ_ONCE(client->process); /* valid under RCU: it is freed after a grace period */
	if (!gs_process_is_current(process) || !refcount_inc_not_zero(&process->refs))
		goto unlock;
	is_own = refcount_inc_not_zero(&client->refs);
	if (is_own) {
		call->client = client;
		call->process = process;
	} else {
		gs_process_put(process);
	}
unlock:
	rcu_read_unlock();
	return is_own;
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
		gs_client_discard(client);
		return 0;
	}
	gs_client_adopt(client, call->process, call->holder, call->rm.client);
	call->client = gs_client_get(client);
	return 0;
}

/* Finds the clients that a call is about. gs_lock may be let go of meanwhile. */
static int gs_call_find_clients(struct gs_call *call)
{
	if (!call->client)
		call->client = gs_call_own_client(call);
	if (!call->client && gs_call_is_astray(call))
		return -EPERM;
	if (!call->client && call->rm.kind != RM_CALL_FREE && gs_call_adopt(call))
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

static void gs_order_end(struct gs_call *call)
{
	if (call->client)
		mutex_unlock(&call->client->order);
	if (call->source)
		mutex_unlock(&call->source->order);
}

/* Finds the process, unless that is known, and the clients. */
static noinline int gs_call_find(struct gs_call *call)
{
	int err = -ENOMEM;

	mutex_lock(&gs_lock);
	if (!call->process)
		call->process = gs_process_of_current();
	if (call->process)
		err = gs_call_find_clients(call);
	mutex_unlock(&gs_lock);
	return err;
}

/*
 * Waits for the turn of a call. If the client was freed before it was our turn, another client may
 * have its handle by now, so the clients are looked up again.
 */
static int gs_call_wait(struct gs_call *call)
{
	int err = 0;

	while (!err) {
		if (!gs_order_try(call)) {
			err = gs_order_wait(call);
			if (err)
				return err;
		}
		if (!(call->client && READ_ONCE(call->client->is_dead)) &&
		    !(call->source && READ_ONCE(call->source->is_dead)))
			return 0;
		gs_order_end(call);
		if (call->client)
			gs_call_put_client(call->client);
		if (call->source)
			gs_client_put(call->source);
		call->client = NULL;
		call->source = NULL;
		err = gs_call_find(call);
	}
	return err;
}

/* Takes a record for what is to be made, and finds its parent. */
static int gs_call_prepare(struct gs_call *call)
{
	struct gs_objects *objects = &call->client->objects;
	int err = 0;

	mutex_lock(&objects->lock);
	if (unlikely(gs_objects_want_more(objects)))
		err = gs_objects_refill(objects);
	if (err)
		goto unlock;
	call->object = gs_object_get(objects);
	call->parent = gs_object_find(objects, call->rm.parent);
	if (call->parent)
		refcount_inc(&call->parent->refs);
unlock:
	mutex_unlock(&objects->lock);
	return err;
}

/**
 * gs_call_enter_in_order() - Begin with a call when it is its turn.
 * @call: A call of kind ALLOC, DUP, FREE or EXPORT, or a control that carries objects.
 *
 * Return: 0, -ENOMEM, -EPERM if its file cannot speak for the client, or -EINTR if the caller was
 * killed meanwhile.
 */
int gs_call_enter_in_order(struct gs_call *call)
{
	int err = 0;

	if (!gs_call_find_own(call) || call->rm.kind == RM_CALL_DUP)
		err = gs_call_find(call);
	if (!err)
		err = gs_call_wait(call);
	if (err)
		goto put;
	if (call->rm.kind == RM_CALL_ALLOC || call->rm.kind == RM_CALL_DUP)
		err = gs_call_prepare(call);
	if (!err)
		return 0;
	gs_order_end(call);
put:
	gs_call_put(call);
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
 * gs_call_leave() - End with a call that was entered.
 * @call: The call, without a client whose order is held.
 */
void gs_call_leave(struct gs_call *call)
{
	gs_call_put(call);
}

/**
 * gs_call_leave_in_order() - End with a call, and let the next one have its turn.
 * @call: A call that was entered in order.
 */
void gs_call_leave_in_order(struct gs_call *call)
{
	gs_order_end(call);
	gs_call_put(call);
}
