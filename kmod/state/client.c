// SPDX-License-Identifier: GPL-2.0
#include <linux/hashtable.h>
#include <linux/slab.h>

#include "members/marks.h"
#include "state/client.h"

#define GS_UNSURE_BITS 8
#define GS_ROOTS_AT_A_TIME 256 /* before others may have the lock */

struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS]; /* read under RCU */
static DEFINE_HASHTABLE(gs_clients_unsure, GS_UNSURE_BITS);   /* by file */
static DEFINE_HASHTABLE(gs_clients_by_file, GS_CLIENTS_BITS);

/**
 * gs_client_new() - Allocate a client that the driver will be asked for.
 *
 * Return: A client that is not in use, which the caller adds or discards, or NULL.
 */
struct gs_client *gs_client_new(void)
{
	struct gs_client *client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);

	if (client)
		gs_objects_prepare(&client->objects);
	return client;
}

/**
 * gs_client_discard() - Free a client that was never in use.
 * @client: A client from gs_client_new(), or NULL.
 */
void gs_client_discard(struct gs_client *client)
{
	kfree(client);
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
	refcount_set(&client->refs, 1);
	client->handle = handle;
	client->file = file;
	client->fd = fd;
	client->process = process;
	refcount_inc(&process->refs);
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

/* No reader walks the table of unsure clients under RCU, so a client may go to the other table. */
static void gs_client_make_sure(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	WRITE_ONCE(client->is_unsure, false);
	hash_del_rcu(&client->by_handle);
	hlist_add_head_rcu(&client->by_handle, gs_clients_of(client->handle));
}

/**
 * gs_client_acknowledge() - Note that the driver has shown that the client exists, on its file.
 * @client: A client that a caller has named. The order of it may be held.
 */
void gs_client_acknowledge(struct gs_client *client)
{
	mutex_lock(&gs_lock);
	if (client->is_unsure && !client->is_dead)
		gs_client_make_sure(client);
	mutex_unlock(&gs_lock);
}

/* Another thread has guessed the handle, and used it before its maker had the answer. */
static void gs_client_take_over(struct gs_client *client, struct gs_process *process, s32 fd)
{
	struct gs_process *old = client->process;

	client->fd = fd;
	if (client->is_unsure)
		gs_client_make_sure(client);
	if (old == process)
		return;
	list_move_tail(&client->process_node, &process->clients);
	refcount_inc(&process->refs);
	WRITE_ONCE(client->process, process);
	gs_process_lost_client(old);
	gs_process_put(old);
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
 *
 * Return: That client, which the caller is to bury without gs_lock, or NULL.
 */
struct gs_client *gs_client_add(struct gs_client *client, struct gs_process *process,
				const struct file *file, u32 handle, s32 fd)
{
	struct gs_client *known = gs_client_on(handle, file) ?: gs_client_find_unsure(handle, file);

	lockdep_assert_held(&gs_lock);
	if (known) {
		gs_client_take_over(known, process, fd);
		gs_client_discard(client);
		return NULL;
	}
	known = gs_client_find(handle, file, process);
	if (known && (known->process != process || !gs_client_unlink(known)))
		known = NULL;
	gs_client_insert(client, process, file, handle, fd);
	hlist_add_head_rcu(&client->by_handle, gs_clients_of(handle));
	return known;
}

/**
 * gs_client_free() - Free a client, to which nothing refers any more.
 * @client: The client.
 */
void gs_client_free(struct gs_client *client)
{
	gs_process_put(client->process);
	gs_objects_free(&client->objects);
	kfree_rcu(client, rcu);
}

/**
 * gs_client_unlink() - Let a client that the driver has freed not be found any more.
 * @client: The client.
 *
 * Return: True if the caller is to bury it. False if it was dead already.
 */
bool gs_client_unlink(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	if (client->is_dead)
		return false;
	WRITE_ONCE(client->is_dead, true);
	hash_del_rcu(&client->by_handle);
	hash_del(&client->by_file);
	return true;
}

/**
 * gs_client_bury() - Forget all objects of a client, and what its process has of it.
 * @client: A client that the caller has unlinked.
 */
void gs_client_bury(struct gs_client *client)
{
	unsigned int roots = 0;

	mutex_lock(&client->objects.lock);
	while (!gs_objects_empty(&client->objects)) {
		if (++roots % GS_ROOTS_AT_A_TIME == 0)
			gs_lock_rest(&client->objects.lock);
	}
	mutex_unlock(&client->objects.lock);
	mutex_lock(&gs_lock);
	list_del(&client->process_node);
	gs_process_lost_client(client->process);
	mutex_unlock(&gs_lock);
	gs_client_put(client);
}

/**
 * gs_client_destroy() - Forget a client that the driver has freed, and all objects below it.
 * @client: A client that may be dead already, with a reference.
 */
void gs_client_destroy(struct gs_client *client)
{
	bool is_first;

	mutex_lock(&gs_lock);
	is_first = gs_client_unlink(client);
	mutex_unlock(&gs_lock);
	if (is_first)
		gs_client_bury(client);
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

	for (;;) {
		mutex_lock(&gs_lock);
		client = gs_client_of_file(file);
		if (client)
			gs_client_unlink(client);
		mutex_unlock(&gs_lock);
		if (!client)
			return;
		gs_client_bury(client);
	}
}

/* One of the clients of a list, unlinked, or NULL. */
static struct gs_client *gs_client_take_first(const struct hlist_head *clients)
{
	struct gs_client *client;

	mutex_lock(&gs_lock);
	client = hlist_entry_safe(clients->first, struct gs_client, by_file);
	if (client)
		gs_client_unlink(client);
	mutex_unlock(&gs_lock);
	return client;
}

/**
 * gs_clients_forget() - Forget all clients: nothing watches the driver, so they would grow stale.
 */
void gs_clients_forget(void)
{
	struct gs_client *client;
	unsigned int bucket;

	for (bucket = 0; bucket < HASH_SIZE(gs_clients_by_file); bucket++) {
		while ((client = gs_client_take_first(&gs_clients_by_file[bucket])))
			gs_client_bury(client);
	}
}
