// SPDX-License-Identifier: GPL-2.0
#include <linux/hashtable.h>
#include <linux/slab.h>

#include "state/client.h"

#define GS_UNSURE_BITS 8

struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS];
static DEFINE_HASHTABLE(gs_clients_unsure, GS_UNSURE_BITS); /* by file */
static DEFINE_HASHTABLE(gs_clients_by_file, GS_CLIENTS_BITS);

/**
 * gs_client_new() - Allocate a client that the driver will be asked for.
 *
 * Return: A zeroed client, which the caller adds or frees by kfree(), or NULL.
 */
struct gs_client *gs_client_new(void)
{
	return kzalloc(sizeof(struct gs_client), GFP_KERNEL_ACCOUNT);
}

/**
 * gs_client_find() - Find the client that a call means.
 * @handle: The handle as the caller named it.
 * @file: The file of the call.
 * @process: The process of the call.
 *
 * The handles of living clients are unique in the machine, and the driver decides which process may
 * use which. If a stale client is remembered beside a living one, the caller's own is taken.
 *
 * Return: A client that the driver has acknowledged, or NULL.
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
 * gs_client_find_unsure() - Find a client that so far was only named.
 * @handle: The handle as the caller named it.
 * @file: The file of the call.
 *
 * Return: The client or NULL.
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
	refcount_inc(&process->refs);
	INIT_LIST_HEAD(&client->objects);
	mutex_init(&client->order);
	list_add_tail(&client->process_node, &process->clients);
	hash_add(gs_clients_by_file, &client->by_file, (unsigned long)file);
}

/**
 * gs_client_adopt() - Remember a client that the caller names and that is not known.
 * @client: A client from gs_client_new(), which this takes over.
 * @process: The process of the call.
 * @file: The file of the call.
 * @handle: The handle as the caller named it.
 *
 * The client is older than the module, or another thread is just making it, or it does not exist.
 * Until the driver has acknowledged it only calls on this file find it, because any program may
 * name any handle.
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
 * gs_client_acknowledge() - Note that the driver has shown that the client exists, on its file.
 * @client: A client with is_unsure.
 */
void gs_client_acknowledge(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	client->is_unsure = false;
	hash_del(&client->by_handle);
	hlist_add_head(&client->by_handle, gs_clients_of(client->handle));
}

/* Another thread has guessed the handle, and used it before its maker had the answer. */
static void gs_client_take_over(struct gs_client *client, struct gs_process *process, s32 fd)
{
	client->fd = fd;
	if (client->is_unsure)
		gs_client_acknowledge(client);
	if (client->process == process)
		return;
	list_move_tail(&client->process_node, &process->clients);
	refcount_inc(&process->refs);
	gs_process_lost_client(client->process);
	gs_process_put(client->process);
	client->process = process;
}

/**
 * gs_client_add() - Remember a client that the driver made.
 * @client: A client from gs_client_new(), which this takes over.
 * @process: The process that made it.
 * @file: The file that it was made on.
 * @handle: The handle that the driver answered.
 * @fd: The descriptor of @file, -1 if unknown.
 *
 * If another client of the process has this handle it is gone, because otherwise the driver could
 * not have made this one.
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
 * gs_client_free() - Free a client, to which nothing refers any more.
 * @client: The client.
 */
void gs_client_free(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	gs_process_put(client->process);
	kfree(client);
}

/**
 * gs_client_destroy() - Forget a client that the driver has freed, and all objects below it.
 * @client: A client that may be dead already. gs_lock is let go of meanwhile if it has many
 *	objects.
 *
 * Nothing finds it any more from the beginning on.
 */
void gs_client_destroy(struct gs_client *client)
{
	struct gs_object *object;

	lockdep_assert_held(&gs_lock);
	if (client->is_dead)
		return;
	client->is_dead = true;
	hash_del(&client->by_handle);
	hash_del(&client->by_file);
	while ((object = list_first_entry_or_null(&client->objects, struct gs_object, sibling)))
		gs_object_destroy(object);
	list_del(&client->process_node);
	gs_process_lost_client(client->process);
	gs_client_put(client);
}

static struct gs_client *gs_client_of_file(const struct file *file)
{
	struct gs_client *client;

	hash_for_each_possible(gs_clients_by_file, client, by_file, (unsigned long)file) {
		if (client->file == file)
			return client;
	}
	return NULL;
}

/**
 * gs_clients_file_closed() - Forget the clients of a file that the driver has released.
 * @file: The file, which is only compared.
 */
void gs_clients_file_closed(const struct file *file)
{
	struct gs_client *client;

	mutex_lock(&gs_lock);
	while ((client = gs_client_of_file(file))) {
		gs_client_destroy(client);
		gs_lock_rest();
	}
	mutex_unlock(&gs_lock);
}

/**
 * gs_clients_forget() - Forget all clients: nothing watches the driver, so they would grow stale.
 */
void gs_clients_forget(void)
{
	unsigned int bucket;

	mutex_lock(&gs_lock);
	for (bucket = 0; bucket < HASH_SIZE(gs_clients_by_file); bucket++) {
		while (!hlist_empty(&gs_clients_by_file[bucket])) {
			gs_client_destroy(hlist_entry(gs_clients_by_file[bucket].first,
						      struct gs_client, by_file));
			gs_lock_rest();
		}
	}
	mutex_unlock(&gs_lock);
}
