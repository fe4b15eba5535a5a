// SPDX-License-Identifier: GPL-2.0
#include <linux/hashtable.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "members/current.h"
#include "rm/rm_kept.h"
#include "state/client.h"
#include "state/kept.h"

static DEFINE_HASHTABLE(gs_kept_names, 12); /* by handle */
static DEFINE_SPINLOCK(gs_kept_lock);       /* It protects the table. */

/* Finds a client of the caller's own without a lock, as it nearly always is. */
static struct gs_client *gs_kept_own_client(u32 handle)
{
	struct gs_client *client, *found = NULL;

	rcu_read_lock();
	hlist_for_each_entry_rcu(client, gs_clients_of(handle), by_handle) {
		if (client->handle == handle && gs_process_is_current(READ_ONCE(client->process)) &&
		    refcount_inc_not_zero(&client->refs)) {
			found = client;
			break;
		}
	}
	rcu_read_unlock();
	return found;
}

static noinline struct gs_client *gs_kept_any_client(u32 handle)
{
	struct gs_client *client;

	mutex_lock(&gs_lock);
	client = gs_client_find(handle, NULL, NULL);
	if (client)
		refcount_inc(&client->refs); /* it was found, so it is not dead */
	mutex_unlock(&gs_lock);
	return client;
}

static void gs_kept_look(struct gs_kept *kept, u32 memory)
{
	struct gs_objects *objects = &kept->client->objects;
	struct gs_object *object;

	mutex_lock(&objects->lock);
	object = gs_object_find(objects, memory);
	if (object && object->charge) {
		refcount_inc(&object->refs);
		refcount_inc(&object->charge->refs);
		kept->object = object;
		kept->charge = object->charge;
	}
	mutex_unlock(&objects->lock);
}

/**
 * gs_kept_begin() - Look at memory that is about to get another name.
 * @client: Its client, as nvidia_uvm was told.
 * @memory: Its handle there.
 *
 * The call does not wait for its turn among those of the client: it would do so under locks of
 * nvidia_uvm that other programs need, and a program can make its own calls last. So the memory may
 * be freed meanwhile, and its handle may be used again; gs_kept_add() finds that out.
 *
 * Return: What the name will hold, or NULL for lack of memory.
 */
struct gs_kept *gs_kept_begin(u32 client, u32 memory)
{
	struct gs_kept *kept = kzalloc(sizeof(*kept), GFP_KERNEL_ACCOUNT);

	if (!kept)
		return NULL;
	kept->client = gs_kept_own_client(client) ?: gs_kept_any_client(client);
	if (kept->client)
		gs_kept_look(kept, memory);
	return kept;
}

static void gs_kept_drop_charge(struct gs_kept *kept)
{
	struct gs_charge *charge = kept->charge;

	kept->charge = NULL;
	if (charge == &kept->own_charge)
		gs_charge_put(charge);
	else if (charge)
		gs_object_put_charge(charge);
}

/* Lets go of what is needed only while the name is made. */
static void gs_kept_made(struct gs_kept *kept)
{
	if (kept->object)
		gs_object_put(kept->object);
	if (kept->client)
		gs_client_put(kept->client);
	kept->object = NULL;
	kept->client = NULL;
}

/*
 * Is the memory that was looked at the one that got the name? It is if it is not freed yet: the
 * handle leads to nothing else before the call that frees it has returned.
 */
static bool gs_kept_is_sure(struct gs_kept *kept)
{
	bool is_alive;

	if (!kept->object)
		return false;
	mutex_lock(&kept->client->objects.lock);
	is_alive = !kept->object->is_dead;
	mutex_unlock(&kept->client->objects.lock);
	return is_alive;
}

/*
 * Charges video memory that is not known: it is older than the module, or made in a way that is not
 * watched, or another thread has changed what the handle leads to. The driver has given it, so this
 * may pass a limit. As its device is not known it counts on the first GPU.
 */
static noinline void gs_kept_charge(struct gs_kept *kept, u64 bytes)
{
	struct gs_process *process;

	mutex_lock(&gs_lock);
	process = gs_process_of_current();
	mutex_unlock(&gs_lock);
	if (!process)
		return;
	gs_charge_init(&kept->own_charge, process, 0, 0, 0);
	gs_charge_given(&kept->own_charge, gs_counter_charge_of(bytes));
	kept->charge = &kept->own_charge;
	gs_process_put(process);
}

/**
 * gs_kept_add() - Remember a name that nvidia_uvm was given.
 * @kept: What gs_kept_begin() returned, which this takes over.
 * @device: What nvidia_uvm calls the GPU by.
 * @handle: The name.
 * @memory: What RM says of the memory.
 */
void gs_kept_add(struct gs_kept *kept, unsigned long device, u32 handle,
		 const struct rm_uvm_memory *memory)
{
	if (!gs_kept_is_sure(kept)) {
		gs_kept_drop_charge(kept);
		if (rm_uvm_memory_is_video(memory))
			gs_kept_charge(kept, memory->size);
	}
	gs_kept_made(kept);
	if (!kept->charge) { /* It is the system's. */
		gs_kept_free(kept);
		return;
	}
	kept->device = device;
	kept->handle = handle;
	spin_lock(&gs_kept_lock);
	hash_add(gs_kept_names, &kept->hash, handle);
	spin_unlock(&gs_kept_lock);
}

/**
 * gs_kept_take() - Forget a name that is about to go.
 * @device: What nvidia_uvm calls the GPU by.
 * @handle: The name. As soon as it is gone it may be given again.
 *
 * Return: What it holds, which the caller frees when it is gone; NULL if nothing is known of it.
 */
struct gs_kept *gs_kept_take(unsigned long device, u32 handle)
{
	struct gs_kept *kept;

	spin_lock(&gs_kept_lock);
	hash_for_each_possible(gs_kept_names, kept, hash, handle) {
		if (kept->handle == handle && kept->device == device) {
			hash_del(&kept->hash);
			break;
		}
	}
	spin_unlock(&gs_kept_lock);
	return kept;
}

/**
 * gs_kept_free() - Let a name hold nothing any more.
 * @kept: A name that is in no table, or NULL.
 */
void gs_kept_free(struct gs_kept *kept)
{
	if (!kept)
		return;
	gs_kept_drop_charge(kept);
	gs_kept_made(kept);
	kfree(kept);
}

/* One of the names, taken out of the table, or NULL. */
static struct gs_kept *gs_kept_take_first(struct hlist_head *names)
{
	struct gs_kept *kept;

	spin_lock(&gs_kept_lock);
	kept = hlist_entry_safe(names->first, struct gs_kept, hash);
	if (kept)
		hash_del(&kept->hash);
	spin_unlock(&gs_kept_lock);
	return kept;
}

/**
 * gs_kept_forget() - Forget all names: nothing watches the driver, so they would grow stale.
 */
void gs_kept_forget(void)
{
	struct gs_kept *kept;
	unsigned int bucket;

	for (bucket = 0; bucket < HASH_SIZE(gs_kept_names); bucket++) {
		while ((kept = gs_kept_take_first(&gs_kept_names[bucket])))
			gs_kept_free(kept);
	}
}
