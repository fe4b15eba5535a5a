// SPDX-License-Identifier: GPL-2.0
/* Clients and objects by handle. */
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "standin.h"

#define CLIENT_BASE 0xC1D00000u
#define CHOSEN_BASE 0xCAF00000u

static DEFINE_HASHTABLE(objects, 12);
static u32 next_client = 1, next_chosen = 1;

static u64 key_of(u32 client, u32 handle)
{
	return (u64)client << 32 | handle;
}

struct sn_object *sn_find(u32 client, u32 handle)
{
	struct sn_object *object;

	hash_for_each_possible(objects, object, by_handle, key_of(client, handle))
		if (object->handle == handle && object->client->handle == client)
			return object;
	return NULL;
}

struct sn_client *sn_client_of(const struct sn_file *file, u32 handle)
{
	struct sn_object *root = sn_find(handle, handle);

	if (file->control)
		file = file->control;
	return root && root->client->file == file ? root->client : NULL;
}

u32 sn_object_make(struct sn_client *client, u32 parent, u32 *handle, u32 class_id,
		   struct sn_object **made)
{
	struct sn_object *object, *above = sn_find(client->handle, parent);

	if (*handle == 0)
		*handle = CHOSEN_BASE + next_chosen++;
	if ((!above && *handle != client->handle) || sn_find(client->handle, *handle))
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	object = kzalloc(sizeof(*object), GFP_KERNEL);
	if (!object)
		return GS_NV_ERR_NO_MEMORY;
	object->handle = *handle;
	object->parent = parent;
	object->class_id = class_id;
	object->client = client;
	object->gpu = above ? above->gpu : NULL;
	hash_add(objects, &object->by_handle, key_of(client->handle, object->handle));
	list_add(&object->in_client, &client->objects);
	*made = object;
	return GS_NV_OK;
}

u32 sn_client_make(struct sn_file *file, u32 class_id, u32 *handle)
{
	struct sn_client *client = kzalloc(sizeof(*client), GFP_KERNEL);
	struct sn_object *root;
	u32 status;

	if (!client)
		return GS_NV_ERR_NO_MEMORY;
	/* It counts up, begins again after 2^20, and passes over handles that are still alive. */
	do {
		*handle = CLIENT_BASE + (next_client++ & 0xFFFFF);
	} while (sn_find(*handle, *handle));
	if (file->control)
		file = file->control; /* with which the client lives */
	client->handle = *handle;
	client->pid = task_tgid_nr(current);
	client->file = file;
	INIT_LIST_HEAD(&client->objects);
	status = sn_object_make(client, 0, handle, class_id, &root);
	if (status) {
		kfree(client);
		return status;
	}
	list_add_tail(&client->in_file, &file->clients);
	return GS_NV_OK;
}

static void free_one(struct sn_object *object)
{
	sn_object_clear(object);
	hash_del(&object->by_handle);
	list_del(&object->in_client);
	kfree(object);
}

static void free_client(struct sn_client *client)
{
	struct sn_object *object, *next;

	/* The newest come first, so children come before parents. */
	list_for_each_entry_safe(object, next, &client->objects, in_client)
		free_one(object);
	list_del(&client->in_file);
	kfree(client);
}

static bool is_below(const struct sn_object *object, const struct sn_object *ancestor)
{
	while (object && object != ancestor)
		object = sn_find(object->client->handle, object->parent);
	return object;
}

void sn_object_free(struct sn_object *object)
{
	struct sn_client *client = object->client;
	struct sn_object *other, *next;

	if (object->handle == client->handle) {
		free_client(client);
		return;
	}
	/* The newest come first, so the way up from each is still there. */
	list_for_each_entry_safe(other, next, &client->objects, in_client)
		if (other != object && is_below(other, object))
			free_one(other);
	free_one(object);
}

void sn_file_free_clients(struct sn_file *file)
{
	struct sn_client *client, *next;

	list_for_each_entry_safe(client, next, &file->clients, in_file)
		free_client(client);
}

void sn_for_each_object(void (*visit)(struct sn_object *object, void *data), void *data)
{
	struct sn_object *object;
	int bucket;

	hash_for_each(objects, bucket, object, by_handle)
		visit(object, data);
}
