// SPDX-License-Identifier: GPL-2.0
/*
 * RM clients and the objects below them, as far as the driver's answers told. Handles come from
 * programs and may be anything; an entry only ever speaks for the file or process that made it.
 * Records of objects are got before the driver is asked: gs_object_get() may fail, gs_object_add()
 * not. Those no longer used are kept for the next: an allocator costs more than all else here.
 */
#include <linux/hashtable.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "compat/version.h"
#include "rm/rm_call.h"
#include "state/objects.h"
#include "state/state.h"
#include "state/stream.h"

#define GS_SPARES_MORE 16
#define GS_UNSURE_BITS 8

/* In a kernel that looks for uses after free, none is kept: it would not see them. */
#define GS_SPARES_MAX (IS_ENABLED(CONFIG_KASAN) ? 0 : 64)

struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS];
static DEFINE_HASHTABLE(gs_clients_unsure, GS_UNSURE_BITS); /* by file */
static DEFINE_HASHTABLE(gs_clients_by_file, GS_CLIENTS_BITS);
struct hlist_head gs_objects[1 << GS_OBJECTS_BITS];
u64 gs_hash_secret; /* odd */
struct hlist_head gs_spares;
unsigned int gs_spares_count;
static struct kmem_cache *gs_object_cache;

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
 * gs_spares_refill() - get some records at once; gs_lock is let go of meanwhile
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
 * gs_object_free() - nobody refers to it any more
 * @object: to be used again
 */
void gs_object_free(struct gs_object *object)
{
	lockdep_assert_held(&gs_lock);
	if (gs_spares_count >= GS_SPARES_MAX) {
		kmem_cache_free(gs_object_cache, object);
		return;
	}
	gs_spares_count++;
	hlist_add_head(&object->hash, &gs_spares);
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
 * Return: the client, one that the driver has acknowledged, or NULL.
 */
struct gs_client *gs_client_find(u32 handle, const struct file *file,
				 const struct gs_process *process)
{
	struct gs_client *client, *of_process = NULL, *any = NULL;

	lockdep_assert_held(&gs_lock);
	hlist_for_each_entry(client, gs_clients_of(handle), by_handle) {
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
 * gs_client_find_unsure() - one that was only named so far
 * @handle: as the caller named it
 * @file: of the call
 *
 * Return: the client or NULL.
 */
struct gs_client *gs_client_find_unsure(u32 handle, const struct file *file)
{
	struct gs_client *client;

	lockdep_assert_held(&gs_lock);
	hash_for_each_possible(gs_clients_unsure, client, by_handle, (unsigned long)file) {
		if (client->handle == handle && client->file == file)
			return client;
	}
	return NULL;
}

static void gs_client_insert(struct gs_client *client, struct gs_process *process,
			     const struct file *file, u32 handle, s32 fd)
{
	client->refs = 1;
	client->handle = handle;
	client->file = file;
	client->fd = fd;
	client->process = process;
	process->refs++;
	INIT_LIST_HEAD(&client->objects);
	mutex_init(&client->order);
	list_add_tail(&client->process_node, &process->clients);
	hash_add(gs_clients_by_file, &client->by_file, (unsigned long)file);
}

/**
 * gs_client_adopt() - remember a client that the caller names and that is not known
 * @client: from gs_client_new(); taken over
 * @process: of the call
 * @file: of the call
 * @handle: as the caller named it
 *
 * It was there before us, another thread is just making it, or there is none. Until the driver has
 * acknowledged it, it is found by calls on this file only: anyone may name any.
 */
void gs_client_adopt(struct gs_client *client, struct gs_process *process, const struct file *file,
		     u32 handle)
{
	lockdep_assert_held(&gs_lock);
	gs_client_insert(client, process, file, handle, -1);
	client->is_unsure = true;
	hash_add(gs_clients_unsure, &client->by_handle, (unsigned long)file);
}

/**
 * gs_client_acknowledge() - the driver has shown that there is such a client, on this file
 * @client: with @is_unsure
 */
void gs_client_acknowledge(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	client->is_unsure = false;
	hash_del(&client->by_handle);
	hlist_add_head(&client->by_handle, gs_clients_of(client->handle));
}

/* A thread has guessed the handle and used it before its maker had the answer. */
static void gs_client_take_over(struct gs_client *client, struct gs_process *process, s32 fd)
{
	client->fd = fd;
	if (client->is_unsure)
		gs_client_acknowledge(client);
	if (client->process == process)
		return;
	list_move_tail(&client->process_node, &process->clients);
	process->refs++;
	gs_process_put(client->process);
	client->process = process;
}

/**
 * gs_client_add() - remember a client that the driver made
 * @client: from gs_client_new(); taken over
 * @process: its maker
 * @file: it was made on
 * @handle: the driver's answer
 * @fd: descriptor of @file, -1 unknown
 *
 * Another one of the process with this handle is gone, or the driver could not have made this.
 */
void gs_client_add(struct gs_client *client, struct gs_process *process, const struct file *file,
		   u32 handle, s32 fd)
{
	struct gs_client *known = gs_client_on(handle, file) ?: gs_client_find_unsure(handle, file);

	lockdep_assert_held(&gs_lock);
	if (known) {
		gs_client_take_over(known, process, fd);
		kfree(client);
		return;
	}
	known = gs_client_find(handle, file, process);
	if (known && known->process == process)
		gs_client_destroy(known);
	gs_client_insert(client, process, file, handle, fd);
	hlist_add_head(&client->by_handle, gs_clients_of(handle));
}

/**
 * gs_client_free() - nobody refers to it any more
 * @client: to be freed
 */
void gs_client_free(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
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
 * gs_object_add() - remember an object that the driver made
 * @object: from gs_object_get(), with what it is filled in; the caller's reference stays
 * @client: it is below
 * @parent: object, with a reference of the caller's; NULL when it is not one that we know
 * @parent_handle: as the caller named it
 * @handle: the driver's answer
 *
 * A remembered one of the same handle is gone, or the driver could not have made this.
 */
void gs_object_add(struct gs_object *object, struct gs_client *client, struct gs_object *parent,
		   u32 parent_handle, u32 handle)
{
	struct gs_object *stale = gs_object_find(client, handle);

	if (stale)
		gs_object_destroy(stale);
	object->refs++;
	object->client = client;
	object->handle = handle;
	hlist_add_head(&object->hash, gs_objects_of(client, handle));
	object->parent_handle = parent_handle;
	object->parent = parent && !parent->is_dead ? parent : NULL;
	list_add_tail(&object->sibling,
		      object->parent ? &object->parent->children : &client->objects);
}

static void gs_object_destroy_leaf(struct gs_object *object)
{
	hlist_del(&object->hash);
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
	struct gs_object *leaf = object, *above;
	bool is_last;

	lockdep_assert_held(&gs_lock);
	if (object->is_dead)
		return;
	do {
		while (!list_empty(&leaf->children))
			leaf = list_first_entry(&leaf->children, struct gs_object, sibling);
		above = leaf->parent;
		is_last = leaf == object;
		gs_object_destroy_leaf(leaf);
		leaf = above;
	} while (!is_last);
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
 * @client: alive; not reported while it is unsure
 */
void gs_client_replay(struct gs_client *client)
{
	struct list_head *level = &client->objects, *at = level->next;
	struct gpushare_event event gs_uninitialized;
	struct gs_object *object;

	lockdep_assert_held(&gs_lock);
	if (client->is_unsure)
		return;
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
	event->object.object = object->handle;
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
	} else if (object->is_video) {
		event->kind = GPUSHARE_EVENT_MEMORY_ALLOCATED;
		event->object.bytes = object->bytes;
		event->flags = GPUSHARE_EVENT_VIDEO;
	}
}

/**
 * gs_clients_init() - prepare the tables
 *
 * Return: 0 or -ENOMEM.
 */
int gs_clients_init(void)
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
 * gs_clients_exit() - free the records; none is in use
 */
void gs_clients_exit(void)
{
	struct gs_object *object;
	struct hlist_node *next;

	hlist_for_each_entry_safe(object, next, &gs_spares, hash)
		kmem_cache_free(gs_object_cache, object);
	kmem_cache_destroy(gs_object_cache);
}
