/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which of the driver's ioctls the filter looks at, and what one asks for, read from a copy of its
 * argument. The driver takes each command with exactly these sizes (VID_HEAP_CONTROL grew over
 * time), so another size is none of our business: it gets the driver's own error. Pure; also
 * compiled in user space, by tests/kmod.
 */
#ifndef GPUSHARE_RM_CALL_H
#define GPUSHARE_RM_CALL_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#endif

#include "rm_abi.h"

/* Of an argument that is looked at. VID_HEAP_CONTROL's has 184 bytes in the releases we know. */
#define RM_ARG_MAX 256

enum rm_call_kind {
	RM_CALL_OTHER, /* passes unseen */
	RM_CALL_ALLOC,
	RM_CALL_FREE,
	RM_CALL_DUP,
	RM_CALL_CONTROL,
};

/**
 * struct rm_call - what a command asks for
 * @kind: which members below mean something
 * @client: RM client
 * @parent: ALLOC, DUP: of the new object
 * @object: FREE, CONTROL: handle; ALLOC, DUP: wished handle, 0 when the driver is to choose
 * @class_id: ALLOC
 * @source_client: DUP
 * @source_object: DUP
 * @cmd: CONTROL: its number
 * @p_params: ALLOC, CONTROL: address of the parameters, 0 for none
 * @params_size: as the caller says; 0 when the class decides
 * @has_inline_size: ALLOC: @bytes is in the argument, not in the parameters
 * @is_opaque: ALLOC, CONTROL: the parameters are serialized and cannot be read
 * @is_video: ALLOC: of video memory
 * @bytes: with @has_inline_size: size, rounded to whole pages
 * @object_offset: ALLOC, DUP: where the driver answers with the handle
 * @status_offset: where it answers with its status
 */
struct rm_call {
	enum rm_call_kind kind;
	__u32 client, parent, object, class_id;
	__u32 source_client, source_object;
	__u32 cmd;
	__u32 params_size;
	__u64 p_params;
	__u64 bytes;
	bool has_inline_size, is_opaque, is_video;
	__u32 object_offset, status_offset;
};

/**
 * rm_call_kind() - is a command looked at?
 * @nr: number of the ioctl, or of the command inside an XFER
 * @size: of its argument
 *
 * Return: RM_CALL_OTHER when not. For VID_HEAP_CONTROL it depends on the argument as well.
 */
static inline enum rm_call_kind rm_call_kind(__u32 nr, __u32 size)
{
	switch (nr) {
	case RM_ESC_CONTROL:
		return size == sizeof(struct rm_nvos54) ? RM_CALL_CONTROL : RM_CALL_OTHER;
	case RM_ESC_ALLOC:
		return size == sizeof(struct rm_nvos64) || size == sizeof(struct rm_nvos21) ?
			       RM_CALL_ALLOC :
			       RM_CALL_OTHER;
	case RM_ESC_FREE:
		return size == sizeof(struct rm_nvos00) ? RM_CALL_FREE : RM_CALL_OTHER;
	case RM_ESC_DUP_OBJECT:
		return size == sizeof(struct rm_nvos55) ? RM_CALL_DUP : RM_CALL_OTHER;
	case RM_ESC_ALLOC_OBJECT:
		return size == sizeof(struct rm_nvos05) ? RM_CALL_ALLOC : RM_CALL_OTHER;
	case RM_ESC_ALLOC_MEMORY:
		return size == sizeof(struct rm_nvos02_fd) ? RM_CALL_ALLOC : RM_CALL_OTHER;
	case RM_ESC_VID_HEAP_CONTROL:
		return size >= sizeof(struct rm_nvos32_head) && size <= RM_ARG_MAX ? RM_CALL_ALLOC :
										     RM_CALL_OTHER;
	default:
		return RM_CALL_OTHER;
	}
}

/**
 * rm_memory_round() - bytes that an allocation takes at least
 * @bytes: asked for
 * @attr: NVOS32_ATTR_*: the page size asked for
 *
 * Return: @bytes rounded up to whole pages, the largest number for one that does not fit.
 */
static inline __u64 rm_memory_round(__u64 bytes, __u32 attr)
{
	__u64 page;

	switch (attr >> RM_MEMORY_ATTR_PAGE_SIZE_SHIFT & 3) {
	case RM_MEMORY_ATTR_PAGE_SIZE_BIG:
		page = 64 << 10;
		break;
	case RM_MEMORY_ATTR_PAGE_SIZE_HUGE:
		page = 2 << 20;
		break;
	default:
		page = 4 << 10;
		break;
	}
	if (bytes > ~0ULL - (page - 1))
		return ~0ULL;
	return (bytes + page - 1) & ~(page - 1);
}

static inline bool rm_is_root_class(__u32 class_id)
{
	return class_id == RM_CLASS_ROOT || class_id == RM_CLASS_ROOT_NON_PRIV ||
	       class_id == RM_CLASS_ROOT_CLIENT;
}

/* A channel class has four hexadecimal digits and ends in 6F: 0xA06F, 0xC86F, 0xCA6F. */
static inline bool rm_is_channel_class(__u32 class_id)
{
	return class_id > 0xFF && class_id <= 0xFFFF &&
	       (class_id & 0xFF) == RM_CHANNEL_CLASS_LOW_BYTE;
}

/* Bits 3 to 7 of a class, as one bit of a word. */
#define RM_CLASS_BIT(class_id) (1u << ((class_id) >> 3 & 31))
#define RM_TRACKED_CLASS_BITS                                                                      \
	(RM_CLASS_BIT(RM_CLASS_MEMORY_LOCAL_USER) | RM_CLASS_BIT(RM_CHANNEL_CLASS_LOW_BYTE) |      \
	 RM_CLASS_BIT(RM_CLASS_ROOT) | RM_CLASS_BIT(RM_CLASS_ROOT_NON_PRIV) |                      \
	 RM_CLASS_BIT(RM_CLASS_ROOT_CLIENT) | RM_CLASS_BIT(RM_CLASS_DEVICE) |                      \
	 RM_CLASS_BIT(RM_CLASS_SUBDEVICE) | RM_CLASS_BIT(RM_CLASS_GROUP))

/*
 * Objects that are remembered: those that events are about, and what can be above them. Of memory
 * only the GPU's, which comes first: it is the most frequent. Of all others one look at five bits
 * tells most apart.
 */
static inline bool rm_is_tracked_class(__u32 class_id)
{
	if (class_id == RM_CLASS_MEMORY_LOCAL_USER)
		return true;
	if (!(RM_TRACKED_CLASS_BITS >> (class_id >> 3 & 31) & 1))
		return false;
	return rm_is_channel_class(class_id) || rm_is_root_class(class_id) ||
	       class_id == RM_CLASS_DEVICE || class_id == RM_CLASS_SUBDEVICE ||
	       class_id == RM_CLASS_GROUP;
}

/* Functions of VID_HEAP_CONTROL that give memory or take it back. */
static inline bool rm_is_heap_function(__u32 function)
{
	return function == RM_HEAP_ALLOC_SIZE || function == RM_HEAP_FREE ||
	       function == RM_HEAP_ALLOC_TILED || function == RM_HEAP_ALLOC_SIZE_RANGE;
}

static inline void rm_parse_heap(const struct rm_nvos32_head *arg, struct rm_call *call)
{
	const struct rm_nvos32_tiled *tiled = (const struct rm_nvos32_tiled *)arg;
	__u32 attr = arg->attr;
	__u64 bytes;

	call->client = arg->h_root;
	call->parent = arg->h_parent;
	call->object = arg->h_memory;
	call->object_offset = offsetof(struct rm_nvos32_head, h_memory);
	call->status_offset = offsetof(struct rm_nvos32_head, status);
	switch (arg->function) {
	case RM_HEAP_FREE:
		call->kind = RM_CALL_FREE;
		return;
	case RM_HEAP_ALLOC_SIZE:
		bytes = arg->size;
		break;
	case RM_HEAP_ALLOC_TILED:
		bytes = (__u64)tiled->height * (__u64)tiled->pitch; /* as the driver does it */
		attr = tiled->attr;
		break;
	case RM_HEAP_ALLOC_SIZE_RANGE:
		bytes = arg->height_or_range_size;
		break;
	default:
		call->kind = RM_CALL_OTHER;
		return;
	}
	if (arg->flags & RM_MEMORY_FLAGS_VIRTUAL) {
		call->kind = RM_CALL_OTHER;
		return;
	}
	if (attr & RM_MEMORY_ATTR_LOCATION_MASK) { /* the system's memory */
		call->kind = RM_CALL_OTHER;
		return;
	}
	call->is_video = true;
	call->class_id = RM_CLASS_MEMORY_LOCAL_USER;
	call->bytes = rm_memory_round(bytes, attr);
	call->has_inline_size = true;
}

/**
 * rm_call_parse() - what a command asks for
 * @nr: number of the command, rm_call_kind() says it is looked at
 * @size: of its argument
 * @arg: @size bytes; nothing is read behind them
 * @call: out, all of it
 */
static inline void rm_call_parse(__u32 nr, __u32 size, const void *arg, struct rm_call *call)
{
	memset(call, 0, sizeof(*call));
	call->kind = rm_call_kind(nr, size);
	switch (nr) {
	case RM_ESC_CONTROL: {
		const struct rm_nvos54 *a = (const struct rm_nvos54 *)arg;

		call->client = a->h_client;
		call->object = a->h_object;
		call->cmd = a->cmd;
		call->p_params = a->p_params;
		call->params_size = a->params_size;
		call->is_opaque = a->flags & RM_CONTROL_FLAGS_SERIALIZED;
		call->status_offset = offsetof(struct rm_nvos54, status);
		break;
	}
	case RM_ESC_ALLOC: {
		/* NVOS21 begins as NVOS64 does, up to p_params. */
		const struct rm_nvos64 *a = (const struct rm_nvos64 *)arg;
		const struct rm_nvos21 *old = (const struct rm_nvos21 *)arg;
		bool is_old = size == sizeof(*old);

		call->client = a->h_root;
		call->parent = a->h_parent;
		call->object = a->h_new;
		call->class_id = a->h_class;
		call->p_params = a->p_params;
		call->params_size = is_old ? old->params_size : a->params_size;
		call->is_opaque = !is_old && (a->flags & RM_ALLOC_FLAGS_SERIALIZED);
		call->is_video = a->h_class == RM_CLASS_MEMORY_LOCAL_USER;
		call->object_offset = offsetof(struct rm_nvos64, h_new);
		call->status_offset = is_old ? offsetof(struct rm_nvos21, status) :
					       offsetof(struct rm_nvos64, status);
		break;
	}
	case RM_ESC_ALLOC_OBJECT: {
		const struct rm_nvos05 *a = (const struct rm_nvos05 *)arg;

		call->client = a->h_root;
		call->parent = a->h_parent;
		call->object = a->h_new;
		call->class_id = a->h_class;
		call->is_video = a->h_class == RM_CLASS_MEMORY_LOCAL_USER;
		call->object_offset = offsetof(struct rm_nvos05, h_new);
		call->status_offset = offsetof(struct rm_nvos05, status);
		break;
	}
	case RM_ESC_ALLOC_MEMORY: {
		const struct rm_nvos02_fd *a = (const struct rm_nvos02_fd *)arg;

		call->client = a->h_root;
		call->parent = a->h_parent;
		call->object = a->h_new;
		call->class_id = a->h_class;
		call->has_inline_size = true;
		call->bytes = a->limit == ~0ULL ? a->limit : rm_memory_round(a->limit + 1, 0);
		/* Of video memory it makes none: it tells how much there is, by an empty object. */
		if (a->h_class == RM_CLASS_MEMORY_LOCAL_USER)
			call->kind = RM_CALL_OTHER;
		call->object_offset = offsetof(struct rm_nvos02_fd, h_new);
		call->status_offset = offsetof(struct rm_nvos02_fd, status);
		break;
	}
	case RM_ESC_FREE: {
		const struct rm_nvos00 *a = (const struct rm_nvos00 *)arg;

		call->client = a->h_root;
		call->object = a->h_object;
		call->status_offset = offsetof(struct rm_nvos00, status);
		break;
	}
	case RM_ESC_DUP_OBJECT: {
		const struct rm_nvos55 *a = (const struct rm_nvos55 *)arg;

		call->client = a->h_client;
		call->parent = a->h_parent;
		call->object = a->h_object;
		call->source_client = a->h_client_src;
		call->source_object = a->h_object_src;
		call->object_offset = offsetof(struct rm_nvos55, h_object);
		call->status_offset = offsetof(struct rm_nvos55, status);
		break;
	}
	case RM_ESC_VID_HEAP_CONTROL:
		rm_parse_heap((const struct rm_nvos32_head *)arg, call);
		break;
	}
}

/**
 * rm_answered_object() - the handle of what was made
 * @call: of kind ALLOC or DUP
 * @arg: the argument, as the driver left it
 *
 * Return: the handle that the driver has given it.
 */
static inline __u32 rm_answered_object(const struct rm_call *call, const void *arg)
{
	return *(const __u32 *)((const char *)arg + call->object_offset);
}

/**
 * rm_answered_bytes() - the size of memory that was made by a call with @has_inline_size
 * @nr: number of the command
 * @arg: the argument, as the driver left it
 *
 * Return: as the driver says.
 */
static inline __u64 rm_answered_bytes(__u32 nr, const void *arg)
{
	const struct rm_nvos32_head *heap = (const struct rm_nvos32_head *)arg;

	if (nr == RM_ESC_ALLOC_MEMORY)
		return ((const struct rm_nvos02_fd *)arg)->limit + 1;
	return heap->function == RM_HEAP_ALLOC_SIZE_RANGE ? heap->height_or_range_size : heap->size;
}

/**
 * struct rm_params - what is read of a call's parameters
 * @value: CONTROL: its first bytes; ALLOC: of memory the size, of a device its number, of a group
 *	its engine. Zero behind what there is
 * @attr: of memory
 */
struct rm_params {
	__u64 value;
	__u32 attr;
};

/**
 * struct rm_params_place - where that stands in them
 * @value_at: offset of the value
 * @value_bytes: at most 8; 0 when nothing is wanted
 * @has_attr: there are attributes, at RM_MEMORY_ATTR_AT
 */
struct rm_params_place {
	__u8 value_at;
	__u8 value_bytes;
	bool has_attr;
};

#define RM_MEMORY_ATTR_AT offsetof(struct rm_memory_params, attr)

/**
 * rm_params_wanted() - what has to be read of a call's parameters
 * @call: of kind ALLOC or CONTROL
 *
 * RM reads a control's as far as the caller says, and of an allocation as much as the class has,
 * whatever the caller says.
 *
 * Return: it.
 */
static inline struct rm_params_place rm_params_wanted(const struct rm_call *call)
{
	struct rm_params_place wanted = {};

	if (!call->p_params || call->is_opaque || call->has_inline_size)
		return wanted;
	if (call->kind == RM_CALL_CONTROL) {
		wanted.value_bytes =
			call->params_size < sizeof(__u64) ? call->params_size : sizeof(__u64);
	} else if (call->class_id == RM_CLASS_MEMORY_LOCAL_USER) {
		wanted.value_at = offsetof(struct rm_memory_params, size);
		wanted.value_bytes = sizeof(__u64);
		wanted.has_attr = true;
	} else if (call->class_id == RM_CLASS_DEVICE) {
		wanted.value_at = offsetof(struct rm_device_params, device_id);
		wanted.value_bytes = sizeof(__u32);
	} else if (call->class_id == RM_CLASS_GROUP) {
		wanted.value_at = offsetof(struct rm_group_params, engine_type);
		wanted.value_bytes = sizeof(__u32);
	}
	return wanted;
}

/* Copies what of [at, at + wanted) lies within the first `bytes` of parameters. */
static __always_inline void rm_params_copy(void *to, const void *from, __u64 at, __u64 wanted,
					   __u64 bytes)
{
	__u64 there = bytes > at ? bytes - at : 0;

	if (wanted == sizeof(__u64) && there >= wanted)
		memcpy(to, from, sizeof(__u64)); /* one instruction */
	else
		memcpy(to, from, there < wanted ? there : wanted);
}

/**
 * rm_params_put() - write what was read of parameters over another copy of them
 * @copy: of the parameters
 * @bytes: that it has; nothing is written behind them
 * @wanted: of the call
 * @params: what was read
 */
static inline void rm_params_put(void *copy, __u64 bytes, const struct rm_params_place *wanted,
				 const struct rm_params *params)
{
	rm_params_copy((char *)copy + wanted->value_at, &params->value, wanted->value_at,
		       wanted->value_bytes, bytes);
	if (wanted->has_attr && bytes >= RM_MEMORY_ATTR_AT + sizeof(params->attr))
		memcpy((char *)copy + RM_MEMORY_ATTR_AT, &params->attr, sizeof(params->attr));
}

/**
 * rm_params_get() - read the answer out of another copy of parameters
 * @copy: of the parameters
 * @bytes: that it has; nothing is read behind them
 * @wanted: of the call
 * @params: its value is what the copy has
 */
static inline void rm_params_get(const void *copy, __u64 bytes,
				 const struct rm_params_place *wanted, struct rm_params *params)
{
	rm_params_copy(&params->value, (const char *)copy + wanted->value_at, wanted->value_at,
		       wanted->value_bytes, bytes);
}

#endif /* GPUSHARE_RM_CALL_H */
