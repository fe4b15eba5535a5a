/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is read of the parameters that an argument points to, and where it stands in them. The
 * filter reads it, and driver/pin.c puts it over RM's own copy and takes RM's answer from there.
 * This header is pure, and tests/kmod also compile it in user space.
 */
#ifndef GPUSHARE_RM_PARAMS_H
#define GPUSHARE_RM_PARAMS_H

#include "rm_call.h"

/**
 * struct rm_params - What is read of a call's parameters.
 * @value: CONTROL: the first 8 bytes; of SET_PREEMPTION_MODE its two modes. ALLOC: the size of
 *	memory, the number of a device, or the engine of a group. It is filled up with zeros if
 *	there is less.
 * @attr: The attributes of memory, or the flags of SET_PREEMPTION_MODE.
 */
struct rm_params {
	__u64 value;
	__u32 attr;
};

/**
 * struct rm_params_place - Where this stands in the parameters.
 * @value_at: The offset of the value.
 * @value_bytes: Its size, at most 8; 0 if nothing is read.
 * @attr_at: The offset of the attributes.
 * @attr_bytes: Their size, at most 4; 0 if they are not read.
 */
struct rm_params_place {
	__u8 value_at;
	__u8 value_bytes;
	__u8 attr_at;
	__u8 attr_bytes;
};

/* How much of [at, at + wanted) lies within the first `bytes` of parameters. */
static __always_inline __u64 rm_params_there(__u64 at, __u64 wanted, __u64 bytes)
{
	__u64 there = bytes > at ? bytes - at : 0;

	return there < wanted ? there : wanted;
}

/**
 * rm_params_wanted() - Find what has to be read of a call's parameters.
 * @call: A call of kind ALLOC or CONTROL.
 *
 * RM reads the parameters of a control as far as the caller says. Of an allocation it reads as much
 * as the class has, whatever the caller says.
 *
 * Return: The places.
 */
static inline struct rm_params_place rm_params_wanted(const struct rm_call *call)
{
	struct rm_params_place wanted = {};

	if (!call->p_params || call->is_opaque || call->has_inline_size)
		return wanted;
	if (call->kind == RM_CALL_CONTROL) {
		if (call->cmd == RM_CTRL_SET_PREEMPTION_MODE) {
			wanted.value_at = offsetof(struct rm_preemption_params, graphics_mode);
			wanted.attr_bytes = rm_params_there(0, sizeof(__u32), call->params_size);
		}
		wanted.value_bytes =
			rm_params_there(wanted.value_at, sizeof(__u64), call->params_size);
	} else if (call->class_id == RM_CLASS_MEMORY_LOCAL_USER) {
		wanted.value_at = offsetof(struct rm_memory_params, size);
		wanted.value_bytes = sizeof(__u64);
		wanted.attr_at = offsetof(struct rm_memory_params, attr);
		wanted.attr_bytes = sizeof(__u32);
	} else if (call->class_id == RM_CLASS_DEVICE) {
		wanted.value_at = offsetof(struct rm_device_params, device_id);
		wanted.value_bytes = sizeof(__u32);
	} else if (call->class_id == RM_CLASS_GROUP) {
		wanted.value_at = offsetof(struct rm_group_params, engine_type);
		wanted.value_bytes = sizeof(__u32);
	}
	return wanted;
}

/* Copies the part of [at, at + wanted) that lies within the first `bytes` of parameters. */
static __always_inline void rm_params_copy(void *to, const void *from, __u64 at, __u64 wanted,
					   __u64 bytes)
{
	__u64 there = rm_params_there(at, wanted, bytes);

	if (there == sizeof(__u64))
		memcpy(to, from, sizeof(__u64)); /* It becomes one instruction. */
	else
		memcpy(to, from, there);
}

/**
 * rm_params_put() - Write what was read of parameters over another copy of them.
 * @copy: The copy.
 * @bytes: Its size. Nothing is written behind it.
 * @wanted: The places of the call.
 * @params: What was read.
 */
static inline void rm_params_put(void *copy, __u64 bytes, const struct rm_params_place *wanted,
				 const struct rm_params *params)
{
	rm_params_copy((char *)copy + wanted->value_at, &params->value, wanted->value_at,
		       wanted->value_bytes, bytes);
	if (wanted->attr_bytes && bytes >= wanted->attr_at + wanted->attr_bytes)
		memcpy((char *)copy + wanted->attr_at, &params->attr, wanted->attr_bytes);
}

/**
 * rm_params_get() - Read RM's answer out of another copy of parameters.
 * @copy: The copy.
 * @bytes: Its size. Nothing is read behind it.
 * @wanted: The places of the call.
 * @params: Out: its value.
 */
static inline void rm_params_get(const void *copy, __u64 bytes,
				 const struct rm_params_place *wanted, struct rm_params *params)
{
	rm_params_copy(&params->value, (const char *)copy + wanted->value_at, wanted->value_at,
		       wanted->value_bytes, bytes);
}

/**
 * rm_control_value() - Read the number by which a control is judged.
 * @call: A call of kind CONTROL.
 * @params: What was read of its parameters.
 *
 * Return: The mode in which the program's kernels leave the GPU, ~0 if that stays as it is, for
 * SET_PREEMPTION_MODE; the first 8 bytes for all others. Of parameters that cannot be read it is
 * the number that is refused.
 */
static inline __u64 rm_control_value(const struct rm_call *call, const struct rm_params *params)
{
	if (call->cmd != RM_CTRL_SET_PREEMPTION_MODE)
		return call->is_opaque ? ~0ULL : params->value;
	if (call->is_opaque)
		return RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE;
	return params->attr & RM_PREEMPTION_FLAGS_COMPUTE ? params->value >> 32 : ~0ULL;
}

#endif /* GPUSHARE_RM_PARAMS_H */
