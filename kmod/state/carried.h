/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory in files. A program may put memory into a control file, from which whoever has the file
 * gets it as an object of its own. The file keeps the memory when the program has freed it, until
 * the file is released, so each place in it holds the memory's charge, as a duplicate does.
 */
#ifndef GPUSHARE_CARRIED_H
#define GPUSHARE_CARRIED_H

#include "members/charge.h"

struct file;
struct gs_file;
struct gs_object;

/**
 * struct gs_carried - A place in a file with video memory in it.
 * @node: The place in the file's list.
 * @place: Its number.
 * @instance: The GPU.
 * @bytes: How much memory.
 * @charge: That of the memory, with a reference.
 */
struct gs_carried {
	struct list_head node;
	u32 place;
	u32 instance;
	u64 bytes;
	struct gs_charge *charge;
};

/* These need gs_lock. */
void gs_carried_set(struct gs_file *file, u32 place, struct gs_carried *carried);
bool gs_carried_get(const struct gs_file *file, u32 place, struct gs_carried *found);
void gs_carried_drop_all(struct list_head *carried);

/* This needs none. */
void gs_carried_free(struct gs_carried *carried);

#endif /* GPUSHARE_CARRIED_H */
