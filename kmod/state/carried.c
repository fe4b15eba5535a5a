// SPDX-License-Identifier: GPL-2.0
#include <linux/slab.h>

#include "state/carried.h"
#include "state/file.h"
#include "state/object.h"

static struct gs_carried *gs_carried_at(const struct gs_file *file, u32 place)
{
	struct gs_carried *carried;

	lockdep_assert_held(&gs_lock);
	list_for_each_entry(carried, &file->carried, node) {
		if (carried->place == place)
			return carried;
	}
	return NULL;
}

/**
 * gs_carried_free() - Let what was in a file hold nothing any more.
 * @carried: A place that is in no list, or NULL.
 */
void gs_carried_free(struct gs_carried *carried)
{
	if (!carried)
		return;
	if (carried->charge)
		gs_object_put_charge(carried->charge);
	kfree(carried);
}

/**
 * gs_carried_set() - Remember what the driver has put into a file.
 * @file: The file.
 * @place: Where; what was there before is gone.
 * @carried: What is there now, which this takes over, or NULL for nothing that is counted.
 */
void gs_carried_set(struct gs_file *file, u32 place, struct gs_carried *carried)
{
	struct gs_carried *before = gs_carried_at(file, place);

	if (before)
		list_del(&before->node);
	gs_carried_free(before);
	if (!carried)
		return;
	carried->place = place;
	list_add(&carried->node, &file->carried);
}

/**
 * gs_carried_get() - Look up what is in a file.
 * @file: The file.
 * @place: Where.
 * @found: Out: a copy, with a reference of the charge.
 *
 * Return: False if nothing is there that is counted.
 */
bool gs_carried_get(const struct gs_file *file, u32 place, struct gs_carried *found)
{
	const struct gs_carried *carried = gs_carried_at(file, place);

	if (!carried)
		return false;
	*found = *carried;
	refcount_inc(&found->charge->refs);
	return true;
}

/**
 * gs_carried_drop_all() - Forget what is in a file, which the driver has released.
 * @carried: The file's list.
 */
void gs_carried_drop_all(struct list_head *carried)
{
	struct gs_carried *one, *next;

	list_for_each_entry_safe(one, next, carried, node)
		gs_carried_free(one);
	INIT_LIST_HEAD(carried);
}
