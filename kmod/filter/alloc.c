// SPDX-License-Identifier: GPL-2.0
/*
 * Objects that are made: clients, what is remembered below them, and duplicates. Here video memory
 * is refused that a tenant may not have.
 */
#include <linux/file.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>

#include <asm/syscall.h>

#include "compat/user.h"
#include "compat/version.h"
#include "driver/call.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "state/client.h"
#include "state/file.h"
#include "state/report.h"

/* The descriptor that the caller named, or -1 if it does not lead to the file any more. */
static s32 gs_call_fd(const struct gs_call *call)
{
	unsigned long args[6];
	struct file *file;

	syscall_get_arguments(current, current_pt_regs(), args);
	if (args[0] > INT_MAX)
		return -1;
	file = fget_raw(args[0]);
	if (file)
		fput(file);
	return file == call->file ? (s32)args[0] : -1;
}

/*
 * Notes that a client is being made on a file. Returns false if the file speaks for another one's
 * clients, to which the driver would add this one.
 */
static bool gs_client_making_begins(struct gs_call *call)
{
	struct gs_file *record;
	bool is_own;

	mutex_lock(&gs_lock);
	record = gs_file_add(call->new_file);
	is_own = !record->holder;
	if (is_own)
		record->makers++;
	mutex_unlock(&gs_lock);
	return is_own;
}

static void gs_client_making_ends(const struct gs_call *call)
{
	struct gs_file *record;

	mutex_lock(&gs_lock);
	record = gs_file_find(call->file);
	if (record && record->makers)
		record->makers--;
	mutex_unlock(&gs_lock);
}

/* It is reported under gs_lock, so that the report comes before any of what is below the client. */
static void gs_client_made(struct gs_call *call)
{
	u32 handle = rm_answered_object(&call->rm, call->bytes);
	s32 fd = gs_call_fd(call);
	struct gs_client *gone;

	gs_process_open(call->process);
	mutex_lock(&gs_lock);
	gone = gs_client_add(call->new_client, call->process, call->file, handle, fd);
	call->new_client = NULL;
	gs_report_client(call->process, handle, fd, 0);
	mutex_unlock(&gs_lock);
	if (gone)
		gs_client_bury(gone);
}

/**
 * gs_filter_client() - Make a client.
 * @call: A call of kind ALLOC, of a root class.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_client(struct gs_call *call)
{
	struct gs_answer answer gs_uninitialized;

	call->new_client = gs_client_new();
	call->new_file = gs_file_new(call->file);
	if (!call->new_client || !call->new_file || gs_call_enter(call)) {
		gs_client_discard(call->new_client);
		gs_file_discard(call->new_file);
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	}
	if (!gs_client_making_begins(call)) {
		gs_call_leave(call);
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	}

	gs_call_driver(call, &answer);

	if (answer.is_done)
		gs_client_made(call);
	gs_client_making_ends(call);
	gs_call_leave(call);
	return answer.ret;
}

static void gs_memory_refused_event(struct gs_call *call, u32 instance, u64 bytes, u64 repeats)
{
	struct gs_counter *counter = &call->process->tenant->counter;
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	gs_event_init(&event, GPUSHARE_EVENT_MEMORY_REFUSED);
	event.memory_refused.client = call->rm.client;
	event.memory_refused.parent = call->rm.parent;
	event.memory_refused.class_id = call->rm.class_id;
	event.memory_refused.instance = instance;
	event.memory_refused.bytes = bytes;
	event.memory_refused.current_bytes = atomic64_read(&counter->memory[instance]);
	event.memory_refused.max_bytes = gs_counter_room(counter, instance);
	event.memory_refused.repeats = repeats;
	gs_event_send(&event, &call->process->id);
}

static noinline void gs_memory_refused(struct gs_call *call, u32 instance, u64 bytes)
{
	u64 repeats;
	bool is_reported = gs_process_reports_refusal(call->process, &repeats);

	if (is_reported)
		gs_process_open(call->process);
	mutex_lock(&gs_lock);
	gs_counter_refused_memory(&call->process->tenant->counter);
	if (is_reported) {
		gs_memory_refused_event(call, instance, bytes, repeats);
		gs_tenant_had_event(call->process->tenant);
	}
	mutex_unlock(&gs_lock);
}

/* The bytes that a memory object takes; ~0 if the caller hides them. */
static u64 gs_memory_bytes(const struct gs_call *call)
{
	if (call->rm.has_inline_size)
		return call->rm.bytes;
	if (call->rm.is_opaque)
		return ~0ULL;
	return rm_memory_round(call->params.value, call->params.attr);
}

/* The bytes that the driver gave; 0 if it did not say. */
static u64 gs_memory_answered(const struct gs_call *call)
{
	if (call->rm.has_inline_size)
		return rm_answered_bytes(call->nr, call->bytes);
	return call->is_params_answer ? call->params.value : 0;
}

/*
 * The GPU of a new object. A device names it, and all other objects are on their parent's GPU, or
 * on the first one if the parent is not known. Without parameters the driver takes zeros.
 */
static u32 gs_call_instance(const struct gs_call *call)
{
	if (call->rm.class_id == RM_CLASS_DEVICE)
		return min_t(u32, call->params.value, GPUSHARE_MAX_GPUS - 1);
	return call->parent ? call->parent->instance : 0;
}

static noinline void gs_object_made_event(struct gs_call *call)
{
	struct gpushare_event event gs_uninitialized;

	gs_object_event(&event, call->rm.client, call->object);
	if (event.kind)
		gs_event_send(&event, &call->process->id);
}

/*
 * Remembers what the driver made below its client, and reports it unless it is a duplicate. Returns
 * false if the client has gone meanwhile, and has taken the object with it.
 */
static __always_inline bool gs_call_remember(struct gs_call *call, bool is_reported)
{
	struct gs_client *client = call->client;
	bool is_alive;

	if (unlikely(READ_ONCE(client->is_unsure)))
		gs_client_acknowledge(client);
	if (is_reported)
		gs_process_open(call->process);
	mutex_lock(&client->objects.lock);
	is_alive = !READ_ONCE(client->is_dead);
	if (is_alive) {
		gs_object_add(&client->objects, call->object, call->parent, call->rm.parent,
			      rm_answered_object(&call->rm, call->bytes));
		if (is_reported && gs_stream_is_open())
			gs_object_made_event(call);
	}
	mutex_unlock(&client->objects.lock);
	return is_alive;
}

static void gs_object_made(struct gs_call *call)
{
	struct gs_object *object = call->object;

	if (object->is_video)
		object->bytes = gs_memory_answered(call);
	if (object->charge)
		gs_charge_given(object->charge, object->bytes);
	if (!gs_call_remember(call, true))
		gs_object_drop_charge(object);
}

/* Charges a group that is a context. Returns false if the tenant may not have one more. */
static noinline bool gs_call_charge_context(struct gs_call *call)
{
	u64 repeats;

	if (!gs_object_charge_context(call->object, call->process))
		return true;
	mutex_lock(&gs_lock);
	gs_counter_refused_context(&call->process->tenant->counter);
	if (gs_process_reports_refusal(call->process, &repeats))
		gs_tenant_had_event(call->process->tenant);
	mutex_unlock(&gs_lock);
	return false;
}

/* Charges what a call makes before the driver is asked. Returns false if that is not allowed. */
static bool gs_call_charge(struct gs_call *call)
{
	struct gs_object *object = call->object;
	u64 bytes;

	if (object->engine_type >= RM_ENGINE_GR0 && object->engine_type <= RM_ENGINE_GR7)
		return gs_call_charge_context(call);
	if (!object->is_video)
		return true;
	bytes = gs_memory_bytes(call);
	if (!gs_object_charge(object, call->process, bytes))
		return true;
	gs_memory_refused(call, object->instance, bytes);
	return false;
}

/*
 * RM also takes parameters in a serialized form, which no known program uses. Which GPU a device is
 * on, or which engine a group is for, cannot be read there, so such a call is refused: what is made
 * below would be charged to another GPU, and a context would not be counted.
 */
static bool gs_call_hides_place(const struct gs_call *call)
{
	return call->rm.is_opaque &&
	       (call->rm.class_id == RM_CLASS_DEVICE || call->rm.class_id == RM_CLASS_GROUP);
}

/**
 * gs_filter_alloc() - Make an object.
 * @call: A call of kind ALLOC, of a class that is remembered.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_alloc(struct gs_call *call)
{
	s32 fd = call->rm.class_id == RM_CLASS_GROUP ? gs_call_fd(call) : -1;
	struct gs_answer answer gs_uninitialized;
	struct gs_object *object;
	int err;

	if (gs_call_hides_place(call))
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	err = gs_call_enter_in_order(call);
	if (err)
		return gs_call_not_entered(call, err);
	object = call->object;
	object->class_id = call->rm.class_id;
	object->is_video = call->rm.is_video;
	object->instance = gs_call_instance(call);
	object->fd = fd;
	if (call->rm.class_id == RM_CLASS_GROUP)
		object->engine_type = call->params.value;
	if (!gs_call_charge(call)) {
		gs_call_leave_in_order(call);
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	}

	gs_call_driver(call, &answer);

	if (answer.is_done)
		gs_object_made(call);
	else
		gs_object_drop_charge(object);
	gs_call_leave_in_order(call);
	return answer.ret;
}

/* Makes an object of the call a duplicate of @source. The lock of the source's client is held. */
static void gs_object_copy(struct gs_object *object, struct gs_object *source)
{
	object->class_id = source->class_id;
	object->instance = source->instance;
	object->engine_type = source->engine_type;
	object->origin = gs_object_origin(source);
	refcount_inc(&object->origin->refs);
	object->is_video = source->is_video;
	object->bytes = source->bytes;
	object->fd = source->fd;
	object->charge = source->charge;
	if (object->charge)
		refcount_inc(&object->charge->refs);
}

/* Fills in what a duplicate is. Returns false if the original is not remembered. */
static bool gs_call_duplicate(struct gs_call *call)
{
	bool is_own = call->rm.source_client == call->rm.client;
	struct gs_client *client = is_own ? call->client : call->source;
	struct gs_object *source;

	if (!client)
		return false;
	mutex_lock(&client->objects.lock);
	source = gs_object_find(&client->objects, call->rm.source_object);
	if (source)
		gs_object_copy(call->object, source);
	mutex_unlock(&client->objects.lock);
	return source;
}

/*
 * A page of the caller's was missing. It is waited for now, when that keeps no other program
 * waiting. What is written is RM's answer. If RM has not seen the call it is what was there before,
 * and the caller makes the call once more without noticing.
 */
static long gs_dup_after_fault(const struct gs_call *call, const struct gs_answer *answer)
{
	if (gs_user_write(call->user, call->bytes, call->size))
		return -EFAULT;
	if (!call->is_pinned)
		return restart_syscall();
	return answer->status == GS_STATUS_NONE ? -EINVAL : 0;
}

/*
 * Takes away the XFER around the call. The driver would read it again, and would do whatever it
 * found there then while the other process waits.
 */
static void gs_dup_unwrap(struct gs_call *call)
{
	call->cmd = _IOC(_IOC_READ | _IOC_WRITE, _IOC_TYPE(call->cmd), call->nr, call->size);
	call->arg = (unsigned long)call->user;
}

/**
 * gs_filter_dup() - Make a second name for an object, which may be of another client.
 * @call: A call of kind DUP.
 *
 * The duplicate keeps memory alive when the original is freed, so it holds the same charge. While
 * it is made, no call makes or frees anything of the original's client. That client may belong to
 * another process, which must not have to wait for a page of the caller's.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_dup(struct gs_call *call)
{
	struct gs_answer answer gs_uninitialized;
	bool is_of_interest, is_foreign;
	int err;

	err = gs_call_enter_in_order(call);
	if (err)
		return gs_call_not_entered(call, err);
	is_of_interest = gs_call_duplicate(call);
	is_foreign = call->source && READ_ONCE(call->source->process) != call->process;

	if (is_foreign) {
		gs_dup_unwrap(call);
		gs_call_driver_at_once(call, &answer);
	} else {
		gs_call_driver(call, &answer);
	}

	if (!is_of_interest || !answer.is_done || !gs_call_remember(call, false))
		gs_object_drop_charge(call->object);
	gs_call_leave_in_order(call);
	return is_foreign && answer.ret == -EFAULT ? gs_dup_after_fault(call, &answer) : answer.ret;
}
