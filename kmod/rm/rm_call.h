/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which of the driver's ioctls the filter looks at, and what one asks for, as a copy of its
 * argument tells. The driver takes each command with exactly these sizes (VID_HEAP_CONTROL grew
 * over time), so a call of another size passes and gets the driver's own error. This header is
 * pure, and tests/kmod also compile it in user space.
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

#include "rm_classes.h"

/*
 * How much of an argument is looked at. VID_HEAP_CONTROL's has 184 bytes in known releases. That of
 * an EXPORT is longer; only its head is looked at.
 */
#define RM_ARG_MAX 256

enum rm_call_kind {
	RM_CALL_OTHER, /* It passes unseen. */
	RM_CALL_ALLOC,
	RM_CALL_FREE,
	RM_CALL_DUP,
	RM_CALL_CONTROL,
	RM_CALL_REGISTER,
	RM_CALL_EXPORT,
};

/**
 * struct rm_call - What a command asks for.
 * @kind: It says which of the members below mean something.
 * @client: The RM client.
 * @parent: ALLOC, DUP: the parent of the new object.
 * @object: FREE, CONTROL: the handle. ALLOC, DUP: the handle that the caller wishes for, 0 if the
 *	driver chooses.
 * @class_id: ALLOC: the class.
 * @source_client: DUP: the client of the original.
 * @source_object: DUP: the handle of the original.
 * @cmd: CONTROL: its number.
 * @count: EXPORT: how many objects go into a DMA buffer, at most.
 * @fd: REGISTER: the descriptor of the file for whose clients the file of the call is to speak.
 * @p_params: ALLOC, CONTROL: the address of the parameters, 0 for none.
 * @params_size: Their size, as the caller says; 0 if the class decides.
 * @has_inline_size: ALLOC: @bytes is in the argument, not in the parameters.
 * @is_opaque: ALLOC, CONTROL: the parameters are serialized and cannot be read.
 * @is_video: ALLOC: it makes video memory.
 * @bytes: With @has_inline_size: the size, rounded to whole pages.
 * @object_offset: ALLOC, DUP: where the driver answers with the handle.
 * @status_offset: Where the driver answers with its status; not of a REGISTER, which has none.
 */
struct rm_call {
	enum rm_call_kind kind;
	__u32 client, parent, object, class_id;
	__u32 source_client, source_object;
	__u32 cmd, count;
	__s32 fd;
	__u32 params_size;
	__u64 p_params;
	__u64 bytes;
	bool has_inline_size, is_opaque, is_video;
	__u32 object_offset, status_offset;
};

/**
 * rm_call_kind() - Find the kind of a command.
 * @nr: The number of the ioctl, or of the command inside an XFER.
 * @size: The size of its argument.
 *
 * Return: The kind, RM_CALL_OTHER if it is not looked at. For VID_HEAP_CONTROL the argument decides
 * as well: see rm_call_parse().
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
	case RM_ESC_REGISTER_FD:
		return size == sizeof(struct rm_register_fd) ? RM_CALL_REGISTER : RM_CALL_OTHER;
	case RM_ESC_EXPORT_DMA_BUF:
		return size >= RM_EXPORT_DMA_BUF_BYTES_MIN ? RM_CALL_EXPORT : RM_CALL_OTHER;
	case RM_ESC_VID_HEAP_CONTROL:
		return size >= sizeof(struct rm_nvos32_head) && size <= RM_ARG_MAX ? RM_CALL_ALLOC :
										     RM_CALL_OTHER;
	default:
		return RM_CALL_OTHER;
	}
}

/**
 * rm_memory_round() - Compute the bytes that an allocation takes at least.
 * @bytes: What is asked for.
 * @attr: The attributes NVOS32_ATTR_*, which hold the page size that is asked for.
 *
 * Return: @bytes rounded up to whole pages, or the largest number if that does not fit.
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

/* Does this function of VID_HEAP_CONTROL give memory, or take it back? */
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
		bytes = (__u64)tiled->height * (__u64)tiled->pitch; /* as the driver computes it */
		attr = tiled->attr;
		break;
	case RM_HEAP_ALLOC_SIZE_RANGE:
		bytes = arg->height_or_range_size;
		break;
	default:
		call->kind = RM_CALL_OTHER;
		return;
	}
	/* It is address space, or the system's memory. */
	if (arg->flags & RM_MEMORY_FLAGS_VIRTUAL || attr & RM_MEMORY_ATTR_LOCATION_MASK) {
		call->kind = RM_CALL_OTHER;
		return;
	}
	call->is_video = true;
	call->class_id = RM_CLASS_MEMORY_LOCAL_USER;
	call->bytes = rm_memory_round(bytes, attr);
	call->has_inline_size = true;
}

/* The arguments of all three commands begin with the same four members. */
static inline void rm_parse_alloc(__u32 nr, __u32 size, const void *arg, struct rm_call *call)
{
	const struct rm_nvos64 *a = (const struct rm_nvos64 *)arg;
	const struct rm_nvos21 *old = (const struct rm_nvos21 *)arg; /* as NVOS64 up to p_params */
	const struct rm_nvos02_fd *memory = (const struct rm_nvos02_fd *)arg;

	call->client = a->h_root;
	call->parent = a->h_parent;
	call->object = a->h_new;
	call->class_id = a->h_class;
	call->is_video = a->h_class == RM_CLASS_MEMORY_LOCAL_USER;
	call->object_offset = offsetof(struct rm_nvos64, h_new);
	if (nr == RM_ESC_ALLOC_OBJECT) {
		call->status_offset = offsetof(struct rm_nvos05, status);
	} else if (nr == RM_ESC_ALLOC_MEMORY) {
		call->status_offset = offsetof(struct rm_nvos02_fd, status);
		call->has_inline_size = true;
		call->bytes = memory->limit == ~0ULL ? memory->limit :
						       rm_memory_round(memory->limit + 1, 0);
		/* It makes no video memory: by an empty object it tells how much there is. */
		if (call->is_video)
			call->kind = RM_CALL_OTHER;
		call->is_video = false;
	} else if (size == sizeof(*old)) {
		call->status_offset = offsetof(struct rm_nvos21, status);
		call->p_params = old->p_params;
		call->params_size = old->params_size;
	} else {
		call->status_offset = offsetof(struct rm_nvos64, status);
		call->p_params = a->p_params;
		call->params_size = a->params_size;
		call->is_opaque = a->flags & RM_ALLOC_FLAGS_SERIALIZED;
	}
}

/**
 * rm_call_parse() - Read what a command asks for.
 * @nr: The number of a command whose kind is not RM_CALL_OTHER.
 * @size: The size of its argument.
 * @arg: The argument, up to RM_ARG_MAX bytes of it. Nothing is read behind its @size bytes.
 * @call: Out: all members.
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
	case RM_ESC_ALLOC:
	case RM_ESC_ALLOC_OBJECT:
	case RM_ESC_ALLOC_MEMORY:
		rm_parse_alloc(nr, size, arg, call);
		break;
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
	case RM_ESC_REGISTER_FD:
		call->fd = ((const struct rm_register_fd *)arg)->fd;
		break;
	case RM_ESC_EXPORT_DMA_BUF: {
		const struct rm_export_dma_buf_head *a = (const struct rm_export_dma_buf_head *)arg;

		call->client = a->h_client;
		call->count = a->count < RM_EXPORT_DMA_BUF_MAX ? a->count : RM_EXPORT_DMA_BUF_MAX;
		call->status_offset = size - 8;
		break;
	}
	case RM_ESC_VID_HEAP_CONTROL:
		rm_parse_heap((const struct rm_nvos32_head *)arg, call);
		break;
	}
}

/**
 * rm_answered_object() - Read the handle of what was made.
 * @call: A call of kind ALLOC or DUP.
 * @arg: The argument, as the driver left it.
 *
 * Return: The handle that the driver has given it.
 */
static inline __u32 rm_answered_object(const struct rm_call *call, const void *arg)
{
	return *(const __u32 *)((const char *)arg + call->object_offset);
}

/**
 * rm_answered_bytes() - Read the size of memory that a call with has_inline_size made.
 * @nr: The number of the command.
 * @arg: The argument, as the driver left it.
 *
 * Return: The size, as the driver says.
 */
static inline __u64 rm_answered_bytes(__u32 nr, const void *arg)
{
	const struct rm_nvos32_head *heap = (const struct rm_nvos32_head *)arg;

	if (nr == RM_ESC_ALLOC_MEMORY)
		return ((const struct rm_nvos02_fd *)arg)->limit + 1;
	return heap->function == RM_HEAP_ALLOC_SIZE_RANGE ? heap->height_or_range_size : heap->size;
}

#endif /* GPUSHARE_RM_CALL_H */
