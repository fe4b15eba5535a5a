// SPDX-License-Identifier: GPL-2.0
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "state/object.h"

#define GS_SPARES_MORE 16
#define GS_OBJECTS_AT_A_TIME 256 /* that are destroyed before others may have the lock */
#define GS_OBJECTS_GROWTH_BITS 2

/* A kernel that looks for uses after free would not see them in spare records: it keeps none. */
#define GS_SPARES_MAX (IS_ENABLED(CONFIG_KASAN) ? 0 : 32)

u64 gs_hash_secret;
static struct kmem_cache *gs_object_cache;

/**
 * gs_objects_prepare() - Begin with no objects.
 * @objects: Zeroed memory.
 */
void gs_objects_prepare(struct gs_objects *objects)
{
	mutex_init(&objects->lock);
	objects->table = objects->first;
	objects->bits = GS_OBJECTS_FIRST_BITS;
	INIT_LIST_HEAD(&objects->roots);
}

static void gs_objects_free_table(const struct gs_objects *objects, struct hlist_head *table)
{
	if (table != objects->first)
		kvfree(table);
}

/* Puts all objects into a larger table. Returns the table to be freed: the old one, or @table. */
static struct hlist_head *gs_objects_move_to(struct gs_objects *objects, struct hlist_head *table,
					     unsigned int bits)
{
	struct hlist_head *old = objects->table;
	unsigned int i, lists = 1u << objects->bits;
	struct gs_object *object;
	struct hlist_node *next;

	if (bits <= objects->bits)
		return table;
	objects->table = table;
	objects->bits = bits;
	for (i = 0; i < lists; i++) {
		hlist_for_each_entry_safe(object, next, &old[i], hash) {
			hlist_del(&object->hash);
			hlist_add_head(&object->hash, gs_objects_of(objects, object->handle));
		}
	}
	return old;
}

/* Makes a larger table; without memory lookups take longer. The lock is let go of meanwhile. */
static void gs_objects_grow(struct gs_objects *objects)
{
	unsigned int bits = objects->bits + GS_OBJECTS_GROWTH_BITS;
	struct hlist_head *table;

	mutex_unlock(&objects->lock);
	table = kvcalloc(1ul << bits, sizeof(*table), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	mutex_lock(&objects->lock);
	if (!table)
		return;
	table = gs_objects_move_to(objects, table, bits);
	mutex_unlock(&objects->lock);
	gs_objects_free_table(objects, table);
	mutex_lock(&objects->lock);
}

/**
 * gs_objects_refill() - Have a spare record, and a table that is large enough.
 * @objects: Those of a client, with their lock, which is let go of meanwhile.
 *
 * Return: 0 or -ENOMEM.
 */
int gs_objects_refill(struct gs_objects *objects)
{
	void *more[GS_SPARES_MORE];
	int i, count;

	lockdep_assert_held(&objects->lock);
	if (gs_objects_are_crowded(objects))
		gs_objects_grow(objects);
	while (hlist_empty(&objects->spares)) {
		mutex_unlock(&objects->lock);
		count = kmem_cache_alloc_bulk(gs_object_cache, GFP_KERNEL, GS_SPARES_MORE, more);
		mutex_lock(&objects->lock);
		if (!count)
			return -ENOMEM;
		objects->spares_count += count;
		for (i = 0; i < count; i++)
			hlist_add_head(&((struct gs_object *)more[i])->hash, &objects->spares);
	}
	return 0;
}

/**
 * gs_object_free() - Free a record to which nothing refers any more.
 * @object: The record.
 */
void gs_object_free(struct gs_object *object)
{
	if (object->origin)
		gs_object_put(object->origin); /* has no origin itself */
	kmem_cache_free(gs_object_cache, object);
}

/* Drops a reference; with the last one the record is kept for another object, if few are kept. */
static void gs_object_put_spare(struct gs_objects *objects, struct gs_object *object)
{
	if (!refcount_dec_and_test(&object->refs))
		return;
	if (object->origin || objects->spares_count >= GS_SPARES_MAX) {
		gs_object_free(object);
		return;
	}
	objects->spares_count++;
	hlist_add_head(&object->hash, &objects->spares);
}

/* Lets an object hold its own charge, if that was made. Returns @err. */
static int gs_object_hold(struct gs_object *object, int err)
{
	if (err)
		return err;
	refcount_inc(&object->refs);
	object->charge = &object->own_charge;
	return 0;
}

/**
 * gs_object_charge() - Charge the video memory that an object is about to hold.
 * @object: An object without a charge, with its instance.
 * @process: The process that allocates it.
 * @bytes: See gs_charge_try().
 *
 * Return: See gs_charge_try().
 */
int gs_object_charge(struct gs_object *object, struct gs_process *process, u64 bytes)
{
	return gs_object_hold(object,
			      gs_charge_try(&object->own_charge, process, object->instance, bytes));
}

/**
 * gs_object_charge_context() - Charge the context that a group is about to be.
 * @object: A group without a charge.
 * @process: The process that makes it.
 *
 * Return: See gs_charge_try_context().
 */
int gs_object_charge_context(struct gs_object *object, struct gs_process *process)
{
	return gs_object_hold(object, gs_charge_try_context(&object->own_charge, process));
}

/**
 * gs_object_put_charge() - Drop a reference of a charge.
 * @charge: The charge of an object. With the last reference the bytes are given back, and the
 *	object's record may go.
 */
void gs_object_put_charge(struct gs_charge *charge)
{
	if (gs_charge_put(charge))
		gs_object_put(container_of(charge, struct gs_object, own_charge));
}

/**
 * gs_object_drop_charge() - Let an object hold no memory any more.
 * @object: An object that may hold none. With the last one that holds a charge the bytes are given
 *	back. The caller has a reference of the object.
 */
void gs_object_drop_charge(struct gs_object *object)
{
	struct gs_charge *charge = object->charge;

	object->charge = NULL;
	if (charge)
		gs_object_put_charge(charge);
}

static void gs_object_destroy_leaf(struct gs_objects *objects, struct gs_object *object)
{
	hlist_del(&object->hash);
	objects->count--;
	object->is_dead = true;
	list_del(&object->sibling);
	gs_object_drop_charge(object);
	gs_object_put_spare(objects, object);
}

/*
 * Destroys an object with all below it, from the leaves up and without recursion, because a program
 * chooses how deep its tree is. Returns false if it has destroyed @most and there are more.
 */
static bool gs_object_destroy_some(struct gs_objects *objects, struct gs_object *object,
				   unsigned int most)
{
	struct gs_object *leaf = object, *above;

	lockdep_assert_held(&objects->lock);
	while (!object->is_dead) {
		if (!most--)
			return false;
		while (!list_empty(&leaf->children))
			leaf = list_first_entry(&leaf->children, struct gs_object, sibling);
		above = leaf->parent;
		gs_object_destroy_leaf(objects, leaf);
		leaf = above;
	}
	return true;
}

/**
 * gs_object_destroy() - Forget an object that the driver has freed, and all objects below it.
 * @objects: Those of its client, with their lock, which is let go of meanwhile if there are many.
 * @object: An object that may be dead already.
 */
void gs_object_destroy(struct gs_objects *objects, struct gs_object *object)
{
	/* so that its end can be seen, also if it comes during a rest */
	refcount_inc(&object->refs);
	while (!gs_object_destroy_some(objects, object, GS_OBJECTS_AT_A_TIME))
		gs_lock_rest(&objects->lock);
	gs_object_put_spare(objects, object);
}

/**
 * gs_objects_empty() - Forget some of the objects, all of which the driver has freed.
 * @objects: Those of a client, with their lock.
 *
 * Return: True if there are none any more.
 */
bool gs_objects_empty(struct gs_objects *objects)
{
	struct gs_object *object =
		list_first_entry_or_null(&objects->roots, struct gs_object, sibling);

	if (object)
		gs_object_destroy(objects, object);
	return !object;
}

/**
 * gs_objects_free() - Free the spare records and the table.
 * @objects: Those of a client that nothing refers to any more.
 */
void gs_objects_free(struct gs_objects *objects)
{
	struct gs_object *object;
	struct hlist_node *next;

	hlist_for_each_entry_safe(object, next, &objects->spares, hash)
		kmem_cache_free(gs_object_cache, object);
	gs_objects_free_table(objects, objects->table);
}

/**
 * gs_object_add() - Remember an object that the driver made.
 * @objects: Those of its client, with their lock.
 * @object: A record from gs_object_get(), filled in. The caller's reference stays.
 * @parent: The object above, with a reference of the caller's; NULL if it is not remembered.
 * @parent_handle: The parent as the caller named it.
 * @handle: The handle that the driver answered.
 *
 * If an object of the same handle is remembered it is gone, because otherwise the driver could not
 * have made this one.
 */
void gs_object_add(struct gs_objects *objects, struct gs_object *object, struct gs_object *parent,
		   u32 parent_handle, u32 handle)
{
	struct gs_object *stale = gs_object_find(objects, handle);

	if (stale) { /* at once, because the client must stay as it is */
		refcount_inc(&stale->refs);
		gs_object_destroy_some(objects, stale, UINT_MAX);
		gs_object_put_spare(objects, stale);
	}
	refcount_inc(&object->refs);
	object->handle = handle;
	objects->count++;
	hlist_add_head(&object->hash, gs_objects_of(objects, handle));
	object->parent_handle = parent_handle;
	object->parent = parent && !parent->is_dead ? parent : NULL;
	list_add_tail(&object->sibling,
		      object->parent ? &object->parent->children : &objects->roots);
}

/**
 * gs_objects_init() - Prepare the records of objects and the tables of objects and clients.
 *
 * Return: 0 or -ENOMEM.
 */
int gs_objects_init(void)
{
	gs_object_cache =
		kmem_cache_create("gpushare_object", sizeof(struct gs_object), 0, 0, NULL);
	if (!gs_object_cache)
		return -ENOMEM;
	get_random_bytes(&gs_hash_secret, sizeof(gs_hash_secret));
	gs_hash_secret |= 1;
	return 0;
}

/**
 * gs_objects_exit() - Undo gs_objects_init(); no record is in use.
 */
void gs_objects_exit(void)
{
	kmem_cache_destroy(gs_object_cache);
}
