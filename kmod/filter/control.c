// SPDX-License-Identifier: GPL-2.0
/*
 * Scheduling controls, which are refused or let through by the rules of rm/refusals.h. Others that
 * are looked at are handed on from here.
 */
#include "compat/version.h"
#include "driver/call.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "rm/refusals.h"
#include "state/client.h"
#include "state/file.h"

static DEFINE_SPINLOCK(gs_marks_lock); /* It protects is_scheduled and is_sliced of all objects. */

static bool gs_class_has_control(u32 class_id, u32 cmd)
{
	return cmd >> 16 == RM_CLASS_GROUP ? class_id == RM_CLASS_GROUP :
					     rm_is_channel_class(class_id);
}

/*
 * Is the control for a client that is older than the module, whose groups are not known? Its
 * program may be in the middle of its start. The driver itself lets no program use another's
 * client, so such an object is taken for the caller's own, and each time is taken for the first.
 * On a file that was opened since then all clients are known.
 */
static bool gs_control_is_older(const struct gs_call *call, const struct gs_client *client)
{
	bool is_seen;

	mutex_lock(&gs_lock);
	is_seen = gs_file_is_seen(call->holder);
	mutex_unlock(&gs_lock);
	if (is_seen)
		return false;
	if (!client)
		return true;
	return client->process == call->process && client->fd < 0;
}

/* Was the control made before? A channel is scheduled with its group. */
static bool gs_control_was_made(enum gs_rule rule, const struct gs_object *object)
{
	lockdep_assert_held(&gs_marks_lock);
	if (rule == GS_RULE_FIRST_SLICE)
		return gs_object_origin(object)->is_sliced;
	return gs_object_origin(object)->is_scheduled ||
	       (object->parent && gs_object_origin(object->parent)->is_scheduled);
}

static void gs_control_mark(enum gs_rule rule, struct gs_object *object, bool is_made)
{
	struct gs_object *origin = gs_object_origin(object);

	lockdep_assert_held(&gs_marks_lock);
	if (rule == GS_RULE_FIRST_SLICE)
		origin->is_sliced = is_made;
	else if (rule == GS_RULE_FIRST_OWN)
		origin->is_scheduled = is_made;
}

/*
 * Decides about a control of an object that the caller itself made, which gets a reference in
 * @call->object if the control is allowed. What is allowed once is marked before the driver is
 * asked, so that one of two calls at once is refused.
 */
static bool gs_control_of_object(struct gs_call *call, enum gs_rule rule, struct gs_object *object,
				 u64 value)
{
	struct gs_target target = { .is_own = true };
	bool is_allowed;

	spin_lock(&gs_marks_lock);
	target.is_done = gs_control_was_made(rule, object);
	is_allowed = gs_control_is_allowed(rule, &target, value);
	if (is_allowed)
		gs_control_mark(rule, object, true);
	spin_unlock(&gs_marks_lock);
	if (!is_allowed)
		return false;
	refcount_inc(&object->refs);
	call->object = object;
	return true;
}

/* Decides about a control by what is known of its object. */
static bool gs_control_verdict(struct gs_call *call, enum gs_rule rule, u64 value)
{
	struct gs_client *client = call->client;
	struct gs_target target = {};
	struct gs_object *object = NULL;
	bool is_allowed = false;

	if (client && READ_ONCE(client->process) == call->process) {
		mutex_lock(&client->objects.lock);
		object = gs_object_find(&client->objects, call->rm.object);
		if (object && gs_class_has_control(object->class_id, call->rm.cmd))
			is_allowed = gs_control_of_object(call, rule, object, value);
		else
			is_allowed = object && gs_control_is_allowed(rule, &target, value);
		mutex_unlock(&client->objects.lock);
	}
	if (object)
		return is_allowed;
	target.is_own = gs_control_is_older(call, client);
	return gs_control_is_allowed(rule, &target, value);
}

/* Finds the process and the client, which may be another process's, by a file's holder too. */
static noinline int gs_control_find(struct gs_call *call)
{
	struct gs_client *client;

	if (gs_call_enter(call))
		return -ENOMEM;
	mutex_lock(&gs_lock);
	client = gs_client_on(call->rm.client, call->file);
	if (!client) {
		call->holder = gs_file_holder(call->file);
		client = gs_client_find(call->rm.client, call->holder, call->process);
	}
	if (client)
		refcount_inc(&client->refs);
	call->client = client;
	mutex_unlock(&gs_lock);
	return 0;
}

static void gs_control_event(struct gs_call *call, u32 status, u32 flags, u64 repeats)
{
	struct gpushare_event event gs_uninitialized;

	if (!gs_stream_is_open())
		return;
	gs_event_init(&event, GPUSHARE_EVENT_CONTROL_MADE);
	event.flags = flags;
	event.control.client = call->rm.client;
	event.control.object = call->rm.object;
	event.control.command = call->rm.cmd;
	event.control.status = status;
	event.control.value = call->params.value;
	event.control.repeats = repeats;
	gs_event_send(&event, &call->process->id);
}

static noinline void gs_control_count_refusal(struct gs_call *call)
{
	bool is_reported;
	u64 repeats;

	is_reported = gs_process_reports_refusal(call->process, &repeats);
	if (is_reported)
		gs_process_open(call->process);
	mutex_lock(&gs_lock);
	gs_counter_refused_control(&call->process->tenant->counter);
	if (is_reported) {
		gs_control_event(call, RM_ERR_INSUFFICIENT_PERMISSIONS, GPUSHARE_EVENT_REFUSED,
				 repeats);
		gs_tenant_had_event(call->process->tenant);
	}
	mutex_unlock(&gs_lock);
}

/* The driver has refused what was marked as made. */
static void gs_control_unmark(enum gs_rule rule, struct gs_object *object)
{
	spin_lock(&gs_marks_lock);
	gs_control_mark(rule, object, false);
	spin_unlock(&gs_marks_lock);
}

/**
 * gs_filter_control() - Decide about a control of a process that is not the agent.
 * @call: A call of kind CONTROL.
 *
 * What is allowed once is marked before the driver is asked. The mark goes if the driver refuses.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_control(struct gs_call *call)
{
	enum gs_rule rule = gs_rule_of(call->rm.cmd);
	u64 value = rm_control_value(&call->rm, &call->params);
	struct gs_answer answer gs_uninitialized;

	if (rule == GS_RULE_CARRIES)
		return gs_filter_carry(call);
	if (!gs_call_find_own(call) && gs_control_find(call))
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	if (!gs_control_verdict(call, rule, value)) {
		gs_control_count_refusal(call);
		gs_call_leave(call);
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	}

	gs_call_driver(call, &answer);

	if (call->object && !answer.is_done)
		gs_control_unmark(rule, call->object);
	if (answer.status != GS_STATUS_NONE) {
		gs_process_open(call->process);
		gs_control_event(call, answer.status, 0, 0);
	}
	gs_call_leave(call);
	return answer.ret;
}
