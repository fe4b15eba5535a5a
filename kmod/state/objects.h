/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tables of clients and objects, for lookups by every call that is remembered: without a call
 * of a function for each. Filled and emptied by clients.c. All needs gs_lock.
 */
#ifndef GPUSHARE_OBJECTS_H
#define GPUSHARE_OBJECTS_H

#include <linux/hashtable.h>

#include "state/state.h"

#define GS_CLIENTS_BITS 12
#define GS_OBJECTS_BITS 16 /* 512 KiB */

extern struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS];
extern struct hlist_head gs_objects[1 << GS_OBJECTS_BITS];
extern u64 gs_hash_secret;

/* Records to be used again, linked by their place in the table. */
extern struct hlist_head gs_spares;
extern unsigned int gs_spares_count;

void gs_spares_refill(void);

/*
 * Multiplication by a secret odd number, of which the high bits are taken: a program chooses
 * handles, but not which of them meet (Dietzfelbinger et al., "A Reliable Randomized Algorithm for
 * the Closest-Pair Problem", 1997).
 */
static inline struct hlist_head *gs_clients_of(u32 handle)
{
	return &gs_clients_by_handle[handle * gs_hash_secret >> (64 - GS_CLIENTS_BITS)];
}

static inline struct hlist_head *gs_objects_of(const struct gs_client *client, u32 handle)
{
	/* Of clients within 256 GiB no two have a key in common, however far apart they lie. */
	u64 key = ((u64)(uintptr_t)client << 26) + handle;

	return &gs_objects[key * gs_hash_secret >> (64 - GS_OBJECTS_BITS)];
}

/**
 * gs_client_on() - the client of a handle that was made on a file
 * @handle: as the caller named it
 * @file: of the call
 *
 * Return: the client, one that the driver has acknowledged, or NULL.
 */
static inline struct gs_client *gs_client_on(u32 handle, const struct file *file)
{
	struct gs_client *client;

	lockdep_assert_held(&gs_lock);
	hlist_for_each_entry(client, gs_clients_of(handle), by_handle) {
		if (client->handle == handle && client->file == file)
			return client;
	}
	return NULL;
}

/**
 * gs_object_find() - an object by its handle
 * @client: it is below
 * @handle: as the caller named it
 *
 * Return: the object or NULL.
 */
static inline struct gs_object *gs_object_find(struct gs_client *client, u32 handle)
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
 * gs_object_get() - a record of an object that the driver will be asked for
 *
 * Not accounted to the program: the driver's own for the same object is a multiple of it and is
 * not. With gs_lock, which may be let go of meanwhile.
 *
 * Return: as of nothing, with one reference, or NULL.
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
	/* One by one, which costs less than to clear it all. The rest is set when it is added. */
	object->refs = 1;
	object->is_dead = false;
	object->is_scheduled = false;
	object->is_sliced = false;
	object->is_video = false;
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

#endif /* GPUSHARE_OBJECTS_H */
