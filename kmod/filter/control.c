// SPDX-License-Identifier: GPL-2.0
/* Scheduling controls, which are refused or let through by the rules of rm/refusals.h. */
#include "compat/version.h"
#include "driver/call.h"
#include "filter/order.h"
#include "filter/verdicts.h"
#include "rm/refusals.h"
#include "state/client.h"
#include "state/file.h"

static bool gs_class_has_control(u32 class_id, u32 cmd)
{
	return cmd >> 16 == RM_CLASS_GROUP ? class_id == RM_CLASS_GROUP :
					     rm_is_channel_class(class_id);
}

/* The object of a control, if the caller itself made it and the control is one of its class. */
static struct gs_object *gs_control_object(const struct gs_call *call, struct gs_client *client)
{
	struct gs_object *object;

	if (!client || client->process != call->process)
		return NULL;
	object = gs_object_find(client, call->rm.object);
	return object && gs_class_has_control(object->class_id, call->rm.cmd) ? object : NULL;
}

/*
 * Is the control for a client that is older than the module, whose groups are not known? Its
 * program may be in the middle of its start. The driver itself lets no program use another's
 * client, so such an object is taken for the caller's own, and each time is taken for the first.
 * On a file that was opened since then all clients are known.
 */
static bool gs_control_is_older(const struct gs_call *call, struct gs_client *client)
{
	if (gs_file_is_seen(call->holder))
		return false;
	if (!client)
		return true;
	return client->process == call->process && client->fd < 0 &&
	       !gs_object_find(client, call->rm.object);
}

/* Was the control made before? A channel is scheduled with its group. */
static bool gs_control_was_made(enum gs_rule rule, const struct gs_object *object)
{
	if (rule == GS_RULE_FIRST_SLICE)
		return gs_object_origin(object)->is_sliced;
	return gs_object_origin(object)->is_scheduled ||
	       (object->parent && gs_object_origin(object->parent)->is_scheduled);
}

static void gs_control_mark(enum gs_rule rule, struct gs_object *object, bool is_made)
{
	struct gs_object *origin = gs_object_origin(object);

	if (rule == GS_RULE_FIRST_SLICE)
		origin->is_sliced = is_made;
	else if (rule == GS_RULE_FIRST_OWN)
		origin->is_scheduled = is_made;
}

static void gs_control_event(struct gs_call *call, u32 status, u32 flags, u64 repeats)
{
	struct gpushare_event event gs_uninitialized;

	gs_process_open(call->process);
	gs_event_init(&event, GPUSHARE_EVENT_CONTROL_MADE, &call->process->id);
	event.flags = flags;
	event.control.client = call->rm.client;
	event.control.object = call->rm.object;
	event.control.command = call->rm.cmd;
	event.control.status = status;
	event.control.value = call->params.value;
	event.control.repeats = repeats;
	gs_event_send(&event);
}

static void gs_control_count_refusal(struct gs_call *call)
{
	u64 repeats;

	call->process->tenant->controls_refused++;
	if (!gs_process_reports_refusal(call->process, &repeats))
		return;
	gs_control_event(call, RM_ERR_INSUFFICIENT_PERMISSIONS, GPUSHARE_EVENT_REFUSED, repeats);
	gs_tenant_had_event(call->process->tenant);
}

/**
 * gs_filter_control() - Decide about a scheduling control of a process that is not the agent.
 * @call: A call of kind CONTROL.
 *
 * What is allowed once is marked before the driver is asked, so that one of two calls at once is
 * refused. The mark goes if the driver refuses.
 *
 * Return: What the ioctl returns.
 */
long gs_filter_control(struct gs_call *call)
{
	enum gs_rule rule = gs_rule_of(call->rm.cmd);
	u64 value = rm_control_value(&call->rm, &call->params);
	struct gs_target target = {};
	struct gs_client *client;
	struct gs_object *object;
	struct gs_answer answer gs_uninitialized;

	if (gs_call_enter(call))
		return gs_call_refuse(call, RM_ERR_NO_MEMORY);
	client = gs_client_on(call->rm.client, call->file);
	if (!client) {
		call->holder = gs_file_holder(call->file);
		client = gs_client_find(call->rm.client, call->holder, call->process);
	}
	object = gs_control_object(call, client);
	target.is_own = object || gs_control_is_older(call, client);
	target.is_done = object && gs_control_was_made(rule, object);
	if (!gs_control_is_allowed(rule, &target, value)) {
		gs_control_count_refusal(call);
		gs_call_leave(call);
		return gs_call_refuse(call, RM_ERR_INSUFFICIENT_PERMISSIONS);
	}
	if (object) {
		call->object = object;
		object->refs++;
		gs_control_mark(rule, object, true);
	}
	mutex_unlock(&gs_lock);

	gs_call_driver(call, &answer);

	mutex_lock(&gs_lock);
	if (object && !answer.is_done)
		gs_control_mark(rule, object, false);
	if (answer.status != GS_STATUS_NONE)
		gs_control_event(call, answer.status, 0, 0);
	gs_call_leave(call);
	return answer.ret;
}
