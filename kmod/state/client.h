/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The RM clients, as far as the driver's answers told of them. Handles come from programs and may
 * be any number; a client only ever speaks for the file or the process that made it. All functions
 * need gs_lock unless they say otherwise.
 */
#ifndef GPUSHARE_CLIENT_H
#define GPUSHARE_CLIENT_H

#include "state/object.h"
#include "state/process.h"

/**
 * struct gs_client - An RM client.
 * @by_handle: The place in the table by handle. The handles of living clients are unique, but the
 *	table may hold a stale one too. An unsure client is in another table, by its file.
 * @by_file: The place in the table by file.
 * @process_node: The place in its process's list.
 * @process: The process that made it, with a reference.
 * @file: The file that it was made on; the driver frees the client when it releases the file. It is
 *	compared and never dereferenced.
 * @handle: Its name in RM.
 * @fd: The process's descriptor of @file, -1 if unknown.
 * @refs: 1 while it is alive, and 1 for each call in progress.
 * @is_dead: The driver has freed it.
 * @is_unsure: A caller named it, and the driver has not acknowledged it yet.
 * @objects: The objects without a remembered parent.
 * @order: Calls that make or free something of this client hold it while the driver works, so that
 *	the model changes in the order in which the driver did. It is taken before gs_lock. It can
 *	keep only this client's own callers waiting, and another process no longer than the driver
 *	works: see gs_filter_dup().
 */
struct gs_client {
	struct hlist_node by_handle;
	struct hlist_node by_file;
	struct list_head process_node;
	struct gs_process *process;
	const struct file *file;
	u32 handle;
	s32 fd;
	unsigned int refs;
	bool is_dead;
	bool is_unsure;
	struct list_head objects;
	struct mutex order; /* see @order */
};

#define GS_CLIENTS_BITS 12

extern struct hlist_head gs_clients_by_handle[1 << GS_CLIENTS_BITS];

struct gs_client *gs_client_new(void);
struct gs_client *gs_client_find(u32 handle, const struct file *file,
				 const struct gs_process *process);
struct gs_client *gs_client_find_unsure(u32 handle, const struct file *file);
void gs_client_adopt(struct gs_client *client, struct gs_process *process, const struct file *file,
		     u32 handle);
void gs_client_acknowledge(struct gs_client *client);
void gs_client_add(struct gs_client *client, struct gs_process *process, const struct file *file,
		   u32 handle, s32 fd);
void gs_client_destroy(struct gs_client *client);
void gs_client_free(struct gs_client *client);

/* hook/hook.c calls these without gs_lock. */
void gs_clients_file_closed(const struct file *file);
void gs_clients_forget(void);

/* The functions below are in line because every call that is remembered passes them. */

/**
 * gs_client_put() - Drop a reference.
 * @client: It is freed with the last one.
 */
static inline void gs_client_put(struct gs_client *client)
{
	lockdep_assert_held(&gs_lock);
	if (!--client->refs)
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
 * Return: A client that the driver has acknowledged, or NULL.
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

#endif /* GPUSHARE_CLIENT_H */
