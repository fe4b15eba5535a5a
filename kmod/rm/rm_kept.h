/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is read of calls by which memory outlives the objects that a program has of it: it is
 * carried by a file, or nvidia_uvm takes a name for it. This header is pure, and tests/kmod also
 * compile it in user space.
 */
#ifndef GPUSHARE_RM_KEPT_H
#define GPUSHARE_RM_KEPT_H

#include <linux/types.h>
#ifndef __KERNEL__
#include <stdbool.h>
#endif

#include "rm_abi.h"

/**
 * struct rm_carried - The objects that a control carries by a file.
 * @handles: Their handles, in the client of the control, 0 for none.
 * @count: How many these are.
 * @first: The place of the first one in the file.
 * @parent: Imported: what they are below.
 * @is_import: They come out of the file.
 */
struct rm_carried {
	const __u32 *handles;
	__u32 count, first, parent;
	bool is_import;
};

/* How many bytes of parameters does such a control have? */
static inline __u32 rm_carried_bytes(__u32 cmd)
{
	switch (cmd) {
	case RM_CTRL_EXPORT_OBJECT:
		return sizeof(struct rm_export_object);
	case RM_CTRL_IMPORT_OBJECT:
		return sizeof(struct rm_import_object);
	case RM_CTRL_EXPORT_OBJECTS:
		return sizeof(struct rm_export_objects);
	default:
		return sizeof(struct rm_import_objects);
	}
}

/**
 * rm_carried_read() - Read what a control carries.
 * @cmd: The number of a control of the rule GS_RULE_CARRIES.
 * @params: RM's answer, of rm_carried_bytes() bytes.
 *
 * Return: What it carries.
 */
static inline struct rm_carried rm_carried_read(__u32 cmd, const void *params)
{
	const struct rm_export_object *export_one = (const struct rm_export_object *)params;
	const struct rm_import_object *import_one = (const struct rm_import_object *)params;
	const struct rm_export_objects *exports = (const struct rm_export_objects *)params;
	const struct rm_import_objects *imports = (const struct rm_import_objects *)params;
	struct rm_carried carried = {};
	__u32 most = 1;

	switch (cmd) {
	case RM_CTRL_EXPORT_OBJECT:
		carried.handles = &export_one->h_object;
		carried.count = 1;
		break;
	case RM_CTRL_IMPORT_OBJECT:
		carried.handles = &import_one->h_object;
		carried.count = 1;
		carried.parent = import_one->h_parent;
		carried.is_import = true;
		break;
	case RM_CTRL_EXPORT_OBJECTS:
		carried.handles = exports->objects;
		carried.count = exports->count;
		carried.first = exports->first;
		most = RM_EXPORT_OBJECTS_MAX;
		break;
	default:
		carried.handles = imports->objects;
		carried.count = imports->count;
		carried.first = imports->first;
		carried.parent = imports->h_parent;
		carried.is_import = true;
		most = RM_IMPORT_OBJECTS_MAX;
	}
	if (carried.count > most)
		carried.count = most; /* RM has refused more */
	return carried;
}

/**
 * rm_uvm_memory_is_video() - Is memory that nvidia_uvm has a name for a GPU's own?
 * @memory: What RM says of it.
 *
 * Return: False if it is the system's, or belongs to the fabric between GPUs.
 */
static inline bool rm_uvm_memory_is_video(const struct rm_uvm_memory *memory)
{
	return !memory->is_system && (memory->of_device[0] || memory->of_device[1]);
}

#endif /* GPUSHARE_RM_KEPT_H */
