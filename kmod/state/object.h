/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The RM objects below a client: a tree, and a table for the lookups that every remembered call
 * makes. Handles come from programs and may be any number, so an entry only ever speaks for the
 * client that it is below. A record is obtained before the driver is asked, because that may fail,
 * and gs_object_add() may not. What has no reference to an object needs the lock of its client.
 */
#ifndef GPUSHARE_OBJECT_H
#define GPUSHARE_OBJECT_H

#include <linux/list.h>
#include <linux/refcount.h>

#include "members/charge.h"
#include "news/lock.h"

/**
 * struct gs_object - An RM object.
 * @hash: The place in the table by @handle; in a spare record the next one.
 * @handle: Its name in RM, among the objects of its client.
 * @refs: 1 while it is alive, 1 for each call in progress, 1 while @own_charge is held, and 1 for
 *	each duplicate that has it for its @origin.
 * @is_dead: The driver has freed it.
 * @is_scheduled: A GPFIFO_SCHEDULE of it, or of a duplicate, was let through. It is under
 *	gs_marks_lock, as is the next one.
 * @is_sliced: A SET_TIMESLICE of it, or of a duplicate, was let through.
 * @is_video: It is memory of the GPU.
 * @origin: Of a duplicate the first object of that name, with a reference; otherwise NULL.
 * @parent: The object above it, NULL if that is not remembered.
 * @sibling: The place in the parent's or the client's list.
 * @children: The objects below it, which the driver frees with it.
 * @parent_handle: The parent as the caller named it.
 * @class_id: Its RM class.
 * @instance: The GPU that it is on; of a device its own.
 * @engine_type: The engine of a group.
 * @fd: The descriptor that a group was made on.
 * @bytes: The size of memory.
 * @charge: Of video memory: @own_charge, or that of the original.
 * @own_charge: The charge that was made for this object. While it is held the record stays.
 */
struct gs_object {
	struct hlist_node hash;
	u32 handle;
	refcount_t refs;
	bool is_dead;
	bool is_scheduled;
	bool is_sliced;
	bool is_video;
	struct gs_object *origin;
	struct gs_object *parent;
	struct list_head sibling;
	struct list_head children;
	u32 parent_handle;
	u32 class_id;
	u32 instance;
	u32 engine_type;
	s32 fd;
	u64 bytes;
	struct gs_charge *charge;
	struct gs_charge own_charge;
};

#define GS_OBJECTS_FIRST_BITS 4

/**
 * struct gs_objects - All objects of a client.
 * @lock: It protects everything here, and what the objects say of each other.
 * @table: The objects by their handles. It grows with their number.
 * @bits: It has 1 << @bits lists.
 * @count: The number of objects.
 * @first: The first @table.
 * @roots: The objects without a remembered parent.
 * @spares: Records that can be used again, linked by gs_object.hash: an allocator costs more than
 *	everything else that is done about a call.
 * @spares_count: Their number.
 */
struct gs_objects {
	struct mutex lock; /* see @lock */
	struct hlist_head *table;
	unsigned int bits;
	unsigned int count;
	struct hlist_head first[1 << GS_OBJECTS_FIRST_BITS];
	struct list_head roots;
	struct hlist_head spares;
	unsigned int spares_count;
};

#define GS_OBJECTS_MOST_BITS 16 /* a table of 512 KiB */

extern u64 gs_hash_secret; /* an odd number */

void gs_objects_prepare(struct gs_objects *objects);
int gs_objects_refill(struct gs_objects *objects);
bool gs_objects_empty(struct gs_objects *objects);
void gs_objects_free(struct gs_objects *objects);
void gs_object_free(struct gs_object *object);
void gs_object_add(struct gs_objects *objects, struct gs_object *object, struct gs_object *parent,
		   u32 parent_handle, u32 handle);
void gs_object_destroy(struct gs_objects *objects, struct gs_object *object);
int gs_object_charge(struct gs_object *object, struct gs_process *process, u64 bytes);
int gs_object_charge_context(struct gs_object *object, struct gs_process *process);
void gs_object_put_charge(struct gs_charge *charge);
void gs_object_drop_charge(struct gs_object *object);

/* main.c calls these. */
int gs_objects_init(void);
void gs_objects_exit(void);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_object_put() - Drop a reference. It needs no lock.
 * @object: It is freed with the last one.
 */
static inline void gs_object_put(struct gs_object *object)
{
	if (refcount_dec_and_test(&object->refs))
		gs_object_free(object);
}

/**
 * gs_object_origin() - Find the object whose marks count for a duplicate too.
 * @object: Any object.
 *
 * Return: The object itself, unless it is a duplicate.
 */
static inline struct gs_object *gs_object_origin(const struct gs_object *object)
{
	return object->origin ?: (struct gs_object *)object;
}

/*
 * A key is multiplied by a secret odd number, and the high bits of the product are the place in the
 * table: a program chooses handles, but not which of them meet (Dietzfelbinger et al., "A Reliable
 * Randomized Algorithm for the Closest-Pair Problem", 1997).
 */
static inline struct hlist_head *gs_objects_of(const struct gs_objects *objects, u32 handle)
{
	return &objects->table[handle * gs_hash_secret >> (64 - objects->bits)];
}

/**
 * gs_object_find() - Find an object by its handle.
 * @objects: Those of the client that it is below, with their lock.
 * @handle: The handle as the caller named it.
 *
 * Return: The object or NULL.
 */
static inline struct gs_object *gs_object_find(struct gs_objects *objects, u32 handle)
{
	struct gs_object *object;

	lockdep_assert_held(&objects->lock);
	hlist_for_each_entry(object, gs_objects_of(objects, handle), hash) {
		if (object->handle == handle)
			return object;
	}
	return NULL;
}

/* Is there an object for each list of the table, so that it is time for a larger one? */
static inline bool gs_objects_are_crowded(const struct gs_objects *objects)
{
	return objects->count >> objects->bits && objects->bits < GS_OBJECTS_MOST_BITS;
}

/* Is gs_objects_refill() to be called before gs_object_get()? */
static inline bool gs_objects_want_more(const struct gs_objects *objects)
{
	return !objects->spares.first || gs_objects_are_crowded(objects);
}

/**
 * gs_object_get() - Obtain a record of an object that the driver will be asked for.
 * @objects: Those of the client that it will be below, with their lock and a spare record.
 *
 * The record is not accounted to the program: the driver's own record of the same object is several
 * times as large, and is not accounted either.
 *
 * Return: An empty record with one reference.
 */
static inline struct gs_object *gs_object_get(struct gs_objects *objects)
{
	struct gs_object *object = hlist_entry(objects->spares.first, struct gs_object, hash);

	lockdep_assert_held(&objects->lock);
	hlist_del(&object->hash);
	objects->spares_count--;
	/* To set these costs less than to clear it all; gs_object_add() sets the rest. */
	refcount_set(&object->refs, 1);
	object->is_dead = false;
	object->is_scheduled = false;
	object->is_sliced = false;
	object->is_video = false;
	object->origin = NULL;
	object->parent = NULL;
	INIT_LIST_HEAD(&object->children);
	object->class_id = 0;
	object->instance = 0;
	object->engine_type = 0;
	object->fd = -1;
	object->bytes = 0;
	object->charge = NULL;
	return object;
}

#endif /* GPUSHARE_OBJECT_H */
