// SPDX-License-Identifier: GPL-2.0
/*
 * RM clients and the objects below them, as far as the driver's answers told. Handles come from
 * programs and may be anything; an entry only ever speaks for the file or process that made it.
 * Objects are made before the driver is asked: gs_object_new() may fail, gs_object_add() not.
 */
#include <linux/hashtable.h>
#include <linux/random.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include "rm_call.h"
#include "state.h"
#include "stream.h"
#include "version.h"

static DEFINE_HASHTABLE(gs_clients_by_handle, 12);
static DEFINE_HASHTABLE(gs_clients_by_file, 12);
static struct rhashtable gs_objects;
static struct kmem_cache *gs_object_cache;
static u64 gs_objects_secret; /* odd */

/*
 * Multiplication by a secret odd number, of which the high bits are taken: a program chooses
 * handles, but not which of them meet (Dietzfelbinger et al., "A Reliable Randomized Algorithm for
 * the Closest-Pair Problem", 1997).
 */
static __always_inline u32 gs_object_hash(const void *data, u32 bytes, u32 seed)
{
	const struct gs_object_key *key = data;

	return (((uintptr_t)key->client + key->handle) * (gs_objects_secret + 2ULL * seed)) >> 32;
}

static __always_inline int gs_object_compare(struct rhashtable_compare_arg *arg, const void *data)
{
	const struct gs_object_key *key = arg->key;
	const struct gs_object *object = data;

	return object->key.client != key->client || object->key.handle != key->handle;
}

static const struct rhashtable_params gs_objects_params = {
	.key_len = sizeof(struct gs_object_key),
	.key_offset = offsetof(struct gs_object, key),
	.head_offset = offsetof(struct gs_object, hash),
	.hashfn = gs_object_hash,
	.obj_cmpfn = gs_object_compare,
	.automatic_shrinking = true,
};

/**
 * gs_client_new() - memory for a client that the driver will be asked for
 *
 * Return: zeroed, to be added or kfree()d; or NULL.
 */
struct gs_client *gs_client_new(void)
{
	return kzalloc(sizeof(struct gs_client), GFP_KERNEL_ACCOUNT);
}

/**
 * gs_object_new() - memory for an object that the driver will be asked for
 *
 * Not accounted to the program: the driver's own for the same object is a multiple of it and is
 * not.
 *
 * Return: zeroed, with one reference, or NULL.
 */
struct gs_object *gs_object_new(void)
{
	struct gs_object *object = kmem_cache_alloc(gs_object_cache, GFP_KERNEL);

	if (object) {
		*object = (struct gs_object){ .refs = 1, .fd = -1 };
		INIT_LIST_HEAD(&object->children);
	}
	return object;
}

/**
 * gs_client_find() - the client that a call means
 * @handle: as the caller named it
 * @file: of the call
 * @process: of the call
 *
 * Handles of living clients are unique in the machine, and the driver decides who may use which.
 * Should a stale one be remembered beside a living one, the caller's own goes first.
 *
 * Return: the client or NULL.
 */
struct gs_client *gs_client_find(u32 handle, const struct file *file,
				 const struct gs_process *process)
{
	struct gs_client *client, *of_process = NULL, *any = NULL;

	lockdep_assert_held(&gs_lock);
	hash_for_each_possible(gs_clients_by_handle, client, by_handle, handle) {
		if (client->handle != handle)
			continue;
		if (client->file == file)
			return client;
		if (client->process == process)
			of_process = client;
		any = client;
	}
	return of_process ?: any;
}

/**
 * gs_client_add() - remember a client that the driver made
 * @client: from gs_client_new(); taken over
 * @process: its maker
 * @file: it was made on
 * @handle: the driver's answer
 * @fd: descriptor of @file, -1 unknown
 *
 * A thread may have guessed the handle and used it already: then it is known, and stays.
 */
void gs_client_add(struct gs_client *client, struct gs_process *process, const struct file *file,
		   u32 handle, s32 fd)
{
	struct gs_client *known = gs_client_find(handle, file, process);

	lockdep_assert_held(&gs_lock);
	if (known && known->file == file) {
		known->fd = fd;
		kfree(client);
		return;
	}
	client->refs = 1;
	client->handle = handle;
	client->file = file;
	client->fd = fd;
	client->process = process;
	process->refs++;
	INIT_LIST_HEAD(&client->objects);
	mutex_init(&client->order);
	list_add_tail(&client->process_node, &process->clients);
	hash_add(gs_clients_by_handle, &client->by_handle, handle);
	hash_add(gs_clients_by_file, &client->by_file, (unsigned long)file);
}

/**
 * gs_client_put() - drop a reference
 * @client: freed with the last one
 */
void gs_client_put(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	if (--client->refs)
		return;
	gs_process_put(client->process);
	kfree(client);
}

/**
 * gs_client_destroy() - the driver has freed it, and all below it
 * @client: may be dead already; the caller's reference stays
 */
void gs_client_destroy(struct gs_client *client)
{
	struct gs_object *object, *next;

	lockdep_assert_held(&gs_lock);
	if (client->is_dead)
		return;
	client->is_dead = true;
	list_for_each_entry_safe(object, next, &client->objects, sibling)
		gs_object_destroy(object);
	list_del(&client->process_node);
	hash_del(&client->by_handle);
	hash_del(&client->by_file);
	gs_client_put(client);
}

/**
 * gs_object_find() - an object by its handle
 * @client: it is below
 * @handle: as the caller named it
 *
 * Return: the object or NULL.
 */
struct gs_object *gs_object_find(struct gs_client *client, u32 handle)
{
	struct gs_object_key key = { .client = client, .handle = handle };

	lockdep_assert_held(&gs_lock);
	return rhashtable_lookup_fast(&gs_objects, &key, gs_objects_params);
}

/**
 * gs_object_add() - remember an object that the driver made
 * @object: from gs_object_new(), with what it is filled in; the caller's reference stays
 * @client: it is below
 * @parent: object, with a reference of the caller's; NULL when it is not one that we know
 * @parent_handle: as the caller named it
 * @handle: the driver's answer
 *
 * A remembered one of the same handle is gone, or the driver could not have made this. Without a
 * place in the hash (no memory) only the end of its parent finds the object: correct, only late.
 */
void gs_object_add(struct gs_object *object, struct gs_client *client, struct gs_object *parent,
		   u32 parent_handle, u32 handle)
{
	struct gs_object *stale;

	lockdep_assert_held(&gs_lock);
	object->refs++;
	object->key.client = client;
	object->key.handle = handle;
	stale = rhashtable_lookup_get_insert_fast(&gs_objects, &object->hash, gs_objects_params);
	if (stale && !IS_ERR(stale)) {
		gs_object_destroy(stale);
		stale = rhashtable_lookup_get_insert_fast(&gs_objects, &object->hash,
							  gs_objects_params);
	}
	object->is_hashed = !stale;
	object->parent_handle = parent_handle;
	object->parent = parent && !parent->is_dead ? parent : NULL;
	list_add_tail(&object->sibling,
		      object->parent ? &object->parent->children : &client->objects);
}

/**
 * gs_object_free() - free an object
 * @object: from gs_object_new(), that nobody else knows
 */
void gs_object_free(struct gs_object *object)
{
	kmem_cache_free(gs_object_cache, object);
}

/**
 * gs_object_put() - drop a reference
 * @object: freed with the last one
 */
void gs_object_put(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	if (!--object->refs)
		gs_object_free(object);
}

static void gs_object_destroy_leaf(struct gs_object *object)
{
	if (object->is_hashed)
		rhashtable_remove_fast(&gs_objects, &object->hash, gs_objects_params);
	object->is_dead = true;
	list_del(&object->sibling);
	gs_object_drop_charge(object);
	gs_object_put(object);
}

/**
 * gs_object_destroy() - the driver has freed it, and all below it
 * @object: may be dead already; the caller's reference stays
 *
 * From the leaves up, without recursion: how deep the tree is, is the program's choice.
 */
void gs_object_destroy(struct gs_object *object)
{
	struct gs_object *leaf = object;

	lockdep_assert_held(&gs_lock);
	if (object->is_dead)
		return;
	for (;;) {
		struct gs_object *parent;

		while (!list_empty(&leaf->children))
			leaf = list_first_entry(&leaf->children, struct gs_object, sibling);
		parent = leaf->parent;
		if (leaf == object)
			break;
		gs_object_destroy_leaf(leaf);
		leaf = parent;
	}
	gs_object_destroy_leaf(object);
}

/**
 * gs_clients_file_closed() - the driver has released a file, and with it the clients made on it
 * @file: only compared
 */
void gs_clients_file_closed(const struct file *file)
{
	struct gs_client *client;
	struct hlist_node *next;

	mutex_lock(&gs_lock);
	hash_for_each_possible_safe(gs_clients_by_file, client, next, by_file,
				    (unsigned long)file) {
		if (client->file == file)
			gs_client_destroy(client);
	}
	mutex_unlock(&gs_lock);
}

/**
 * gs_clients_forget() - the driver is not watched any more: what is remembered would grow stale
 */
void gs_clients_forget(void)
{
	struct gs_client *client;
	struct hlist_node *next;
	int bucket;

	mutex_lock(&gs_lock);
	hash_for_each_safe(gs_clients_by_file, bucket, next, client, by_file)
		gs_client_destroy(client);
	mutex_unlock(&gs_lock);
}

static void gs_object_replay(struct gs_client *client, const struct gs_object *object)
{
	struct gpushare_event event gs_uninitialized;

	gs_object_event(&event, client->process, client->handle, object);
	event.flags |= GPUSHARE_EVENT_REPLAYED;
	if (event.kind)
		gs_event_send(&event);
}

/**
 * gs_client_replay() - report a client and all below it, parents first
 * @client: alive
 */
void gs_client_replay(struct gs_client *client)
{
	struct list_head *level = &client->objects, *at = level->next;
	struct gpushare_event event gs_uninitialized;
	struct gs_object *object;

	lockdep_assert_held(&gs_lock);
	gs_event_init(&event, GPUSHARE_EVENT_CLIENT_CREATED, client->process);
	event.flags = GPUSHARE_EVENT_REPLAYED;
	event.object.client = client->handle;
	event.object.fd = client->fd;
	gs_event_send(&event);
	for (;;) {
		while (at == level) { /* the end of a level: go on behind the parent */
			if (level == &client->objects)
				return;
			object = container_of(level, struct gs_object, children);
			level = object->parent ? &object->parent->children : &client->objects;
			at = object->sibling.next;
		}
		object = list_entry(at, struct gs_object, sibling);
		gs_object_replay(client, object);
		level = &object->children;
		at = level->next;
	}
}

/**
 * gs_object_event() - the event of an object's creation
 * @event: out; its kind is 0 for a class that has none
 * @process: that made it
 * @client: handle
 * @object: it
 */
void gs_object_event(struct gpushare_event *event, const struct gs_process *process, u32 client,
		     const struct gs_object *object)
{
	gs_event_init(event, 0, process);
	event->object.client = client;
	event->object.parent = object->parent_handle;
	event->object.object = object->key.handle;
	event->object.class_id = object->class_id;
	event->object.fd = -1;
	if (object->class_id == RM_CLASS_DEVICE) {
		event->kind = GPUSHARE_EVENT_DEVICE_CREATED;
		event->object.instance = object->instance;
	} else if (object->class_id == RM_CLASS_GROUP) {
		event->kind = GPUSHARE_EVENT_GROUP_CREATED;
		event->object.engine_type = object->engine_type;
		event->object.fd = object->fd;
	} else if (rm_is_channel_class(object->class_id)) {
		event->kind = GPUSHARE_EVENT_CHANNEL_CREATED;
	} else if (rm_is_memory_class(object->class_id)) {
		event->kind = GPUSHARE_EVENT_MEMORY_ALLOCATED;
		event->object.bytes = object->bytes;
		event->flags = object->is_video ? GPUSHARE_EVENT_VIDEO : 0;
	}
}

/*
 * Objects are filled in when they are got, so the kernel need not zero them: a constructor says so.
 */
static void gs_object_construct(void *object)
{
}

/**
 * gs_clients_init() - prepare the tables
 *
 * Return: 0 or a negative errno.
 */
int gs_clients_init(void)
{
	int err;

	gs_object_cache = kmem_cache_create("gpushare_object", sizeof(struct gs_object), 0, 0,
					    gs_object_construct);
	if (!gs_object_cache)
		return -ENOMEM;
	get_random_bytes(&gs_objects_secret, sizeof(gs_objects_secret));
	gs_objects_secret |= 1;
	err = rhashtable_init(&gs_objects, &gs_objects_params);
	if (err)
		kmem_cache_destroy(gs_object_cache);
	return err;
}

/**
 * gs_clients_exit() - free the tables; they are empty
 */
void gs_clients_exit(void)
{
	rhashtable_destroy(&gs_objects);
	kmem_cache_destroy(gs_object_cache);
}
