// SPDX-License-Identifier: GPL-2.0
#include <linux/hash.h>
#include <linux/irq_work.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "state/buffered.h"
#include "state/object.h"

#define GS_BUFFERED_BITS 8

/*
 * The names by their handle. The lock of a list, a bit in its head, also protects who owns what is
 * in it. The probes take it. Until the kernel has optimized them they run like NMIs, but never
 * where a lock here is held.
 */
static struct hlist_bl_head gs_buffered_names[1 << GS_BUFFERED_BITS];
static LLIST_HEAD(gs_buffered_gone);

static struct hlist_bl_head *gs_buffered_list(u32 handle)
{
	return &gs_buffered_names[hash_32(handle, GS_BUFFERED_BITS)];
}

static void gs_buffered_free(struct gs_buffered *buffered)
{
	if (buffered->charge)
		gs_object_put_charge(buffered->charge);
	kfree(buffered);
}

static void gs_buffered_sweep(struct work_struct *work)
{
	struct gs_buffered *buffered, *next;

	llist_for_each_entry_safe(buffered, next, llist_del_all(&gs_buffered_gone), gone)
		gs_buffered_free(buffered);
}

static DECLARE_WORK(gs_buffered_sweeper, gs_buffered_sweep);

static void gs_buffered_wake(struct irq_work *work)
{
	schedule_work(&gs_buffered_sweeper);
}

/* A probe may not wake the sweeper by itself. */
static struct irq_work gs_buffered_waker = IRQ_WORK_INIT(gs_buffered_wake);

/*
 * Takes a name out of its list, whose lock is held. Its call frees it if that is under way,
 * otherwise the sweeper.
 */
static void gs_buffered_unlink(struct gs_buffered *buffered)
{
	hlist_bl_del_init(&buffered->hash);
	if (!buffered->is_making && llist_add(&buffered->gone, &gs_buffered_gone))
		irq_work_queue(&gs_buffered_waker);
}

/**
 * gs_buffering_begin() - Make ready for a call that may put memory into a DMA buffer.
 * @buffering: Out: all members.
 * @count: How many objects it may put there.
 *
 * Return: 0 or -ENOMEM.
 */
int gs_buffering_begin(struct gs_buffering *buffering, u32 count)
{
	struct gs_buffered *buffered;

	INIT_LIST_HEAD(&buffering->spare);
	INIT_LIST_HEAD(&buffering->made);
	while (count--) {
		buffered = kzalloc(sizeof(*buffered), GFP_KERNEL_ACCOUNT);
		if (!buffered) {
			gs_buffering_end(buffering);
			return -ENOMEM;
		}
		list_add(&buffered->node, &buffering->spare);
	}
	return 0;
}

static struct gs_charge *gs_buffered_charge_of(struct gs_objects *objects, u32 memory)
{
	struct gs_charge *charge = NULL;
	struct gs_object *object;

	mutex_lock(&objects->lock);
	object = gs_object_find(objects, memory);
	if (object && object->charge) {
		charge = object->charge;
		refcount_inc(&charge->refs);
	}
	mutex_unlock(&objects->lock);
	return charge;
}

/**
 * gs_buffering_charge() - Let the names that a call has made hold the charges of their memory.
 * @buffering: The names. Those that RM still has are not the call's any more.
 * @objects: Those of the program's client, whose order the call holds: they are what they were when
 *	RM took the names.
 */
void gs_buffering_charge(struct gs_buffering *buffering, struct gs_objects *objects)
{
	struct gs_buffered *buffered, *next;
	struct hlist_bl_head *list;
	bool is_kept;

	list_for_each_entry_safe(buffered, next, &buffering->made, node) {
		buffered->charge = gs_buffered_charge_of(objects, buffered->memory);
		list_del(&buffered->node);
		list = gs_buffered_list(buffered->handle);
		hlist_bl_lock(list);
		if (!buffered->charge) /* It is the system's, or older than we are. */
			hlist_bl_del_init(&buffered->hash);
		buffered->is_making = false;
		is_kept = !hlist_bl_unhashed(&buffered->hash);
		hlist_bl_unlock(list);
		if (!is_kept)
			gs_buffered_free(buffered);
	}
}

/**
 * gs_buffering_end() - End with a call.
 * @buffering: What it has not used is freed; it has handed over the rest.
 */
void gs_buffering_end(struct gs_buffering *buffering)
{
	struct gs_buffered *buffered, *next;

	list_for_each_entry_safe(buffered, next, &buffering->spare, node)
		gs_buffered_free(buffered);
}

/**
 * gs_buffered_may_come() - May RM take one more name for this call?
 * @buffering: The call's.
 *
 * Return: False if the call did not say that there would be so many.
 */
bool gs_buffered_may_come(const struct gs_buffering *buffering)
{
	return !list_empty(&buffering->spare);
}

/**
 * gs_buffered_came() - Remember a name that RM has taken.
 * @buffering: The call's, by whose task RM does it. gs_buffered_may_come() was true.
 * @memory: The memory, by its handle in the program's client.
 * @client: RM's own client.
 * @handle: The name there.
 */
void gs_buffered_came(struct gs_buffering *buffering, u32 memory, u32 client, u32 handle)
{
	struct gs_buffered *buffered =
		list_first_entry(&buffering->spare, struct gs_buffered, node);
	struct hlist_bl_head *list = gs_buffered_list(handle);

	list_move_tail(&buffered->node, &buffering->made);
	buffered->memory = memory;
	buffered->client = client;
	buffered->handle = handle;
	buffered->is_making = true;
	hlist_bl_lock(list);
	hlist_bl_add_head(&buffered->hash, list);
	hlist_bl_unlock(list);
}

/**
 * gs_buffered_went() - Forget a name that RM is about to give back.
 * @client: RM's own client.
 * @handle: The name there. It may not be known.
 */
void gs_buffered_went(u32 client, u32 handle)
{
	struct hlist_bl_head *list = gs_buffered_list(handle);
	struct gs_buffered *buffered;
	struct hlist_bl_node *node;

	hlist_bl_lock(list);
	hlist_bl_for_each_entry(buffered, node, list, hash) {
		if (buffered->handle == handle && buffered->client == client) {
			gs_buffered_unlink(buffered);
			break;
		}
	}
	hlist_bl_unlock(list);
}

/**
 * gs_buffered_forget() - Forget all names: nothing watches the driver, so they would grow stale.
 */
void gs_buffered_forget(void)
{
	struct gs_buffered *buffered;
	struct hlist_bl_node *node, *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gs_buffered_names); i++) {
		hlist_bl_lock(&gs_buffered_names[i]);
		hlist_bl_for_each_entry_safe(buffered, node, next, &gs_buffered_names[i], hash)
			gs_buffered_unlink(buffered);
		hlist_bl_unlock(&gs_buffered_names[i]);
	}
	irq_work_sync(&gs_buffered_waker);
	flush_work(&gs_buffered_sweeper);
}
