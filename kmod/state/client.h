/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The RM clients, as far as the driver's answers told of them. Handles come from programs and may
 * be any number; a client only ever speaks for the file or the process that made it. Clients are
 * found under gs_lock, or by their handle under RCU, and come and go under gs_lock. Their objects
 * have a lock of their own.
 */
#ifndef GPUSHARE_CLIENT_H
#define GPUSHARE_CLIENT_H

#include <linux/rculist.h>

#include "members/process.h"
#include "state/object.h"

/**
 * struct gs_client - An RM client.
 * @by_handle: The place in the table by handle, which readers may walk under RCU. The handles of
 *	living clients are unique, but the table may hold a stale one too. An unsure client is in
 *	another table, by its file.
 * @by_file: The place in the table by file.
 * @process_node: The place in its process's list.
 * @rcu: For freeing.
 * @process: The process that made it, with a reference. It is changed under gs_lock.
 * @file: The file that it was made on; the driver frees the client when it releases the file. It is
 *	compared and never dereferenced.
 * @handle: Its name in RM.
 * @fd: The process's descriptor of @file, -1 if unknown.
 * @refs: 1 while it is alive, and 1 for each call in progress.
 * @is_dead: The driver has freed it. It is set under gs_lock, and the objects' lock is taken after
 *	that, so no object is added that would be left over.
 * @is_unsure: A caller named it, and the driver has not acknowledged it yet.
 * @objects: The objects below it.
 * @order: Calls that make or free something of this client hold it while the driver works, so that
 *	the model changes in the order in which the driver did. It is taken before gs_lock. It can
 *	keep only this client's own callers waiting, and another process no longer than the driver
 *	works: see gs_filter_dup().
 */
struct gs_client {
	struct hlist_node by_handle;
	struct hlist_node by_file;
	struct list_head process_node;
	struct rcu_head rcu;
	struct gs_process *process;
	const struct file *file;
	u32 handle;
	s32 fd;
	refcount_t refs;
	bool is_dead;
	bool is_unsure;
	struct gs_objects objects;
	struct mutex order; /* see @order */
};

#define GS_CLIENTS_BITS 12

extern struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS];

struct gs_client *gs_client_new(void); /* needs no lock */
void gs_client_discard(struct gs_client *client);

/* These need gs_lock. */
struct gs_client *gs_client_find(u32 handle, const struct file *file,
				 const struct gs_process *process);
struct gs_client *gs_client_find_unsure(u32 handle, const struct file *file);
void gs_client_adopt(struct gs_client *client, struct gs_process *process, const struct file *file,
		     u32 handle);
struct gs_client *gs_client_add(struct gs_client *client, struct gs_process *process,
				const struct file *file, u32 handle, s32 fd);
bool gs_client_unlink(struct gs_client *client);

/* These take it themselves. */
void gs_client_acknowledge(struct gs_client *client);
void gs_client_bury(struct gs_client *client);
void gs_client_destroy(struct gs_client *client);
void gs_clients_file_closed(const struct file *file);
void gs_clients_forget(void);

/* The functions below are in line because every call that is remembered passes them. */

void gs_client_free(struct gs_client *client);

/**
 * gs_client_put() - Drop a reference. It needs no lock.
 * @client: It is freed with the last one.
 */
static inline void gs_client_put(struct gs_client *client)
{
	if (refcount_dec_and_test(&client->refs))
		gs_client_free(client);
}

static inline struct hlist_head *gs_clients_of(u32 handle)
{
	return &gs_clients_by_handle[handle * gs_hash_secret >> (64 - GS_CLIENTS_BITS)];
}

/**
 * gs_client_on() - Find the client of a handle that was made on a file.
 * @handle: The handle as the caller named it.
 * @file: The file of the call.
 *
 * It needs gs_lock or rcu_read_lock().
 *
 * Return: A client that the driver has acknowledged, or NULL.
 */
static inline struct gs_client *gs_client_on(u32 handle, const struct file *file)
{
	struct gs_client *client;

	hlist_for_each_entry_rcu(client, gs_clients_of(handle), by_handle,
				 lockdep_is_held(&gs_lock)) {
		if (client->handle == handle && client->file == file)
			return client;
	}
	return NULL;
}

#endif /* GPUSHARE_CLIENT_H */
