// SPDX-License-Identifier: GPL-2.0
/*
 * Controls that put objects into a file, or make objects of what is in one: state/carried.h. Which
 * objects, and which file, is taken from what RM did, because the program can change both in
 * mid-call.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "compat/version.h"
#include "driver/call.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "rm/rm_kept.h"
#include "state/carried.h"
#include "state/client.h"
#include "state/file.h"

/*
 * What is to be in the file for an object of the client; NULL if it is no video memory. The driver
 * has put it there, so this may not fail: a program could use up the memory of its cgroup before.
 */
static struct gs_carried *gs_carry_of(struct gs_client *client, u32 handle)
{
	struct gs_carried *carried = kzalloc(sizeof(*carried), GFP_KERNEL_ACCOUNT | __GFP_NOFAIL);
	struct gs_object *object;

	mutex_lock(&client->objects.lock);
	object = gs_object_find(&client->objects, handle);
	if (object && object->is_video && object->charge) {
		carried->instance = object->instance;
		carried->bytes = object->bytes;
		carried->charge = object->charge;
		refcount_inc(&carried->charge->refs);
	}
	mutex_unlock(&client->objects.lock);
	if (carried->charge)
		return carried;
	gs_carried_free(carried);
	return NULL;
}

static void gs_carry_into(struct gs_call *call, const struct rm_carried *what)
{
	struct gs_carried *carried;
	struct gs_file *record;
	u32 i;

	call->new_file->file = call->carrier;
	mutex_lock(&gs_lock);
	gs_file_add(call->new_file);
	mutex_unlock(&gs_lock);
	call->new_file = NULL;
	for (i = 0; i < what->count; i++) {
		carried = what->handles[i] ? gs_carry_of(call->client, what->handles[i]) : NULL;
		mutex_lock(&gs_lock);
		record = gs_file_find(call->carrier);
		if (record)
			gs_carried_set(record, what->first + i, carried);
		else
			gs_carried_free(carried);
		mutex_unlock(&gs_lock);
	}
}

/* Remembers an object that the driver has made, with the charge of what was in the file. */
static void gs_carry_make(struct gs_client *client, const struct gs_carried *from, u32 parent,
			  u32 handle)
{
	struct gs_objects *objects = &client->objects;
	struct gs_object *object = NULL;

	mutex_lock(&objects->lock);
	if (READ_ONCE(client->is_dead) ||
	    (gs_objects_want_more(objects) && gs_objects_refill(objects)))
		goto unlock;
	object = gs_object_get(objects);
	object->class_id = RM_CLASS_MEMORY_LOCAL_USER;
	object->is_video = true;
	object->instance = from->instance;
	object->bytes = from->bytes;
	object->charge = from->charge;
	gs_object_add(objects, object, gs_object_find(objects, parent), parent, handle);
unlock:
	mutex_unlock(&objects->lock);
	if (object)
		gs_object_put(object);
	else
		gs_object_put_charge(from->charge);
}

static void gs_carry_out_of(struct gs_call *call, const struct rm_carried *what)
{
	struct gs_carried found;
	struct gs_file *record;
	bool is_counted;
	u32 i;

	if (READ_ONCE(call->client->is_unsure))
		gs_client_acknowledge(call->client);
	for (i = 0; i < what->count; i++) {
		mutex_lock(&gs_lock);
		record = gs_file_find(call->carrier);
		is_counted = record && gs_carried_get(record, what->first + i, &found);
		mutex_unlock(&gs_lock);
		if (is_counted)
			gs_carry_make(call->client, &found, what->parent, what->handles[i]);
	}
}

/**
 * gs_filter_carry() - Let objects go into a file or come out of one.
 * @call: A call of kind CONTROL, of the rule GS_RULE_CARRIES.
 *
 * No known program hands the parameters over in serialized form. In that form it could not be seen
 * what is carried, so such a call is refused.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_carry(struct gs_call *call)
{
	struct gs_answer answer gs_uninitialized;
	struct rm_carried what;
	int err;

	if (call->rm.is_opaque)
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	call->carrier = NULL;
	call->carried = kzalloc(rm_carried_bytes(call->rm.cmd), GFP_KERNEL_ACCOUNT);
	call->new_file = gs_file_new(NULL);
	err = call->carried && call->new_file ? gs_call_enter_in_order(call) : -ENOMEM;
	if (err) {
		gs_file_discard(call->new_file);
		kfree(call->carried);
		return gs_call_not_entered(call, err);
	}

	gs_call_driver(call, &answer);

	if (answer.is_done && call->carrier && call->is_params_answer) {
		what = rm_carried_read(call->rm.cmd, call->carried);
		if (what.is_import)
			gs_carry_out_of(call, &what);
		else
			gs_carry_into(call, &what);
	}
	gs_call_leave_in_order(call);
	if (call->carrier)
		fput(call->carrier);
	gs_file_discard(call->new_file);
	kfree(call->carried);
	return answer.ret;
}
