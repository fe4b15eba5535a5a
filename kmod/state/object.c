// SPDX-License-Identifier: GPL-2.0
/*
 * The records of objects. Those that are no longer used are kept for the next objects, because an
 * allocator costs more than everything else that is done about a call.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "state/object.h"

#define GS_SPARES_MORE 16
#define GS_OBJECTS_AT_A_TIME 256 /* that are destroyed before others may have gs_lock */

/* A kernel that looks for uses after free would not see them in spare records: it keeps none. */
#define GS_SPARES_MAX (IS_ENABLED(CONFIG_KASAN) ? 0 : 64)

struct hlist_head gs_objects[1 << GS_OBJECTS_BITS];
u64 gs_hash_secret;
struct hlist_head gs_spares;
unsigned int gs_spares_count;
static struct kmem_cache *gs_object_cache;

/**
 * gs_spares_refill() - Allocate some records at once; gs_lock is let go of meanwhile.
 */
void gs_spares_refill(void)
{
	void *more[GS_SPARES_MORE];
	int i, count;

	mutex_unlock(&gs_lock);
	count = kmem_cache_alloc_bulk(gs_object_cache, GFP_KERNEL, GS_SPARES_MORE, more);
	mutex_lock(&gs_lock);
	gs_spares_count += count;
	for (i = 0; i < count; i++)
		hlist_add_head(&((struct gs_object *)more[i])->hash, &gs_spares);
}

/**
 * gs_object_free() - Keep a record for another object, or free it if enough are kept.
 * @object: A record to which nothing refers any more.
 */
void gs_object_free(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	if (object->origin)
		gs_object_put(object->origin); /* has no origin itself */
	if (gs_spares_count >= GS_SPARES_MAX) {
		kmem_cache_free(gs_object_cache, object);
		return;
	}
	gs_spares_count++;
	hlist_add_head(&object->hash, &gs_spares);
}

/* Lets an object hold its own charge, if that was made. Returns @err. */
static int gs_object_hold(struct gs_object *object, int err)
{
	if (err)
		return err;
	object->refs++;
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
 * gs_object_drop_charge() - Let an object hold no memory any more.
 * @object: An object that may hold none. With the last one that holds a charge the bytes are given
 *	back.
 */
void gs_object_drop_charge(struct gs_object *object)
{
	struct gs_charge *charge = object->charge;

	lockdep_assert_held(&gs_lock);
	object->charge = NULL;
	if (charge && gs_charge_put(charge))
		gs_object_put(container_of(charge, struct gs_object, own_charge));
}

static void gs_object_destroy_leaf(struct gs_object *object)
{
	hlist_del(&object->hash);
	object->is_dead = true;
	list_del(&object->sibling);
	gs_object_drop_charge(object);
	gs_object_put(object);
}

/*
 * Destroys an object with all below it, from the leaves up and without recursion, because a program
 * chooses how deep its tree is. Returns false if it has destroyed @most and there are more.
 */
static bool gs_object_destroy_some(struct gs_object *object, unsigned int most)
{
	struct gs_object *leaf = object, *above;

	while (!object->is_dead) {
		if (!most--)
			return false;
		while (!list_empty(&leaf->children))
			leaf = list_first_entry(&leaf->children, struct gs_object, sibling);
		above = leaf->parent;
		gs_object_destroy_leaf(leaf);
		leaf = above;
	}
	return true;
}

/**
 * gs_object_destroy() - Forget an object that the driver has freed, and all objects below it.
 * @object: An object that may be dead already. gs_lock is let go of meanwhile if there are many.
 */
void gs_object_destroy(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	object->refs++; /* so that its end can be seen, also if it comes during a rest */
	while (!gs_object_destroy_some(object, GS_OBJECTS_AT_A_TIME))
		gs_lock_rest();
	gs_object_put(object);
}

/**
 * gs_object_add() - Remember an object that the driver made.
 * @object: A record from gs_object_get(), filled in. The caller's reference stays.
 * @client: The client that it is below.
 * @roots: The client's list of objects without a remembered parent.
 * @parent: The object above, with a reference of the caller's; NULL if it is not remembered.
 * @parent_handle: The parent as the caller named it.
 * @handle: The handle that the driver answered.
 *
 * If an object of the same handle is remembered it is gone, because otherwise the driver could not
 * have made this one.
 */
void gs_object_add(struct gs_object *object, struct gs_client *client, struct list_head *roots,
		   struct gs_object *parent, u32 parent_handle, u32 handle)
{
	struct gs_object *stale = gs_object_find(client, handle);

	if (stale) { /* at once, because the client must stay as it is */
		stale->refs++;
		gs_object_destroy_some(stale, UINT_MAX);
		gs_object_put(stale);
	}
	object->refs++;
	object->client = client;
	object->handle = handle;
	hlist_add_head(&object->hash, gs_objects_of(client, handle));
	object->parent_handle = parent_handle;
	object->parent = parent && !parent->is_dead ? parent : NULL;
	list_add_tail(&object->sibling, object->parent ? &object->parent->children : roots);
}

/**
 * gs_objects_init() - Prepare the tables of objects and clients.
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
 * gs_objects_exit() - Free the spare records; no record is in use.
 */
void gs_objects_exit(void)
{
	struct gs_object *object;
	struct hlist_node *next;

	hlist_for_each_entry_safe(object, next, &gs_spares, hash)
		kmem_cache_free(gs_object_cache, object);
	kmem_cache_destroy(gs_object_cache);
}
