/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The RM objects below a client: a tree, and a table for the lookups that every remembered call
 * makes. Handles come from programs and may be any number, so an entry only ever speaks for the
 * client that it is below. A record is obtained before the driver is asked, because gs_object_get()
 * may fail and gs_object_add() may not. All functions need gs_lock unless they say otherwise.
 */
#ifndef GPUSHARE_OBJECT_H
#define GPUSHARE_OBJECT_H

#include <linux/list.h>

#include "state/charge.h"
#include "state/lock.h"

struct gs_client;

/**
 * struct gs_object - An RM object.
 * @hash: The place in the table by @client and @handle; in a spare record the next one.
 * @client: The client that it is below.
 * @handle: Its name in RM, among the objects of its client.
 * @refs: 1 while it is alive, 1 for each call in progress, 1 while @own_charge is held, and 1 for
 *	each duplicate that has it for its @origin.
 * @is_dead: The driver has freed it.
 * @is_scheduled: A GPFIFO_SCHEDULE of it, or of a duplicate, was let through.
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
	struct gs_client *client;
	u32 handle;
	unsigned int refs;
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

#define GS_OBJECTS_BITS 16 /* a table of 512 KiB */

extern struct hlist_head gs_objects[1 << GS_OBJECTS_BITS];
extern u64 gs_hash_secret; /* an odd number */

/* Records that can be used again, linked by gs_object.hash. */
extern struct hlist_head gs_spares;
extern unsigned int gs_spares_count;

void gs_spares_refill(void);
void gs_object_free(struct gs_object *object);
void gs_object_add(struct gs_object *object, struct gs_client *client, struct list_head *roots,
		   struct gs_object *parent, u32 parent_handle, u32 handle);
void gs_object_destroy(struct gs_object *object);
int gs_object_charge(struct gs_object *object, struct gs_process *process, u64 bytes);
int gs_object_charge_context(struct gs_object *object, struct gs_process *process);
void gs_object_drop_charge(struct gs_object *object);

/* main.c calls these without gs_lock. */
int gs_objects_init(void);
void gs_objects_exit(void);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_object_put() - Drop a reference.
 * @object: It is freed with the last one.
 */
static inline void gs_object_put(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	if (!--object->refs)
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
static inline struct hlist_head *gs_objects_of(const struct gs_client *client, u32 handle)
{
	/* No two clients within 256 GiB have a key in common, however far apart they lie. */
	u64 key = ((u64)(uintptr_t)client << 26) + handle;

	return &gs_objects[key * gs_hash_secret >> (64 - GS_OBJECTS_BITS)];
}

/**
 * gs_object_find() - Find an object by its handle.
 * @client: The client that it is below.
 * @handle: The handle as the caller named it.
 *
 * Return: The object or NULL.
 */
static inline struct gs_object *gs_object_find(const struct gs_client *client, u32 handle)
{
	struct gs_object *object;

	lockdep_assert_held(&gs_lock);
	hlist_for_each_entry(object, gs_objects_of(client, handle), hash) {
		if (object->handle == handle && object->client == client)
			return object;
	}
	return NULL;
}

/**
 * gs_object_get() - Obtain a record of an object that the driver will be asked for.
 *
 * The record is not accounted to the program: the driver's own record of the same object is several
 * times as large, and is not accounted either. gs_lock may be let go of meanwhile.
 *
 * Return: An empty record with one reference, or NULL.
 */
static inline struct gs_object *gs_object_get(void)
{
	struct gs_object *object;

	lockdep_assert_held(&gs_lock);
	if (hlist_empty(&gs_spares))
		gs_spares_refill();
	if (hlist_empty(&gs_spares))
		return NULL;
	object = hlist_entry(gs_spares.first, struct gs_object, hash);
	hlist_del(&object->hash);
	gs_spares_count--;
	/* To set these costs less than to clear it all; gs_object_add() sets the rest. */
	object->refs = 1;
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
