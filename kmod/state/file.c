// SPDX-License-Identifier: GPL-2.0
#include <linux/hashtable.h>
#include <linux/slab.h>

#include "state/carried.h"
#include "state/file.h"

static DEFINE_HASHTABLE(gs_files, 12); /* by file */
static bool gs_files_are_seen;         /* Every call goes through the filter. */

/**
 * gs_file_new() - Allocate a record.
 * @file: The file that it is about.
 *
 * Return: The record, which the caller adds or discards, or NULL.
 */
struct gs_file *gs_file_new(const struct file *file)
{
	struct gs_file *record = kzalloc(sizeof(*record), GFP_KERNEL_ACCOUNT);

	if (!record)
		return NULL;
	record->file = file;
	INIT_LIST_HEAD(&record->carried);
	return record;
}

/**
 * gs_file_discard() - Free a record that was not added.
 * @record: The record, or NULL.
 */
void gs_file_discard(struct gs_file *record)
{
	kfree(record);
}

/**
 * gs_file_find() - Find the record of a file.
 * @file: The file.
 *
 * Return: The record, or NULL for a file that was opened unseen and is not registered to another.
 */
struct gs_file *gs_file_find(const struct file *file)
{
	struct gs_file *record;

	lockdep_assert_held(&gs_lock);
	hash_for_each_possible(gs_files, record, hash, (unsigned long)file) {
		if (record->file == file)
			return record;
	}
	return NULL;
}

/**
 * gs_file_add() - Remember a file.
 * @record: A record from gs_file_new(), which this takes over.
 *
 * Return: The record of the file, which is another one if there was one.
 */
struct gs_file *gs_file_add(struct gs_file *record)
{
	struct gs_file *known = gs_file_find(record->file);

	if (known) {
		kfree(record);
		return known;
	}
	hash_add(gs_files, &record->hash, (unsigned long)record->file);
	return record;
}

/**
 * gs_file_is_seen() - Are all clients of a file known?
 * @file: The file.
 *
 * Return: False if it may have clients that the driver made unseen, before the module came or while
 * it was drained.
 */
bool gs_file_is_seen(const struct file *file)
{
	struct gs_file *record = gs_file_find(file);

	return record ? record->is_seen : file == GS_FILE_NOBODY;
}

/**
 * gs_file_holder() - Find the file whose clients a file speaks for.
 * @file: The file of a call.
 *
 * Return: The control file that @file is registered to, otherwise @file itself.
 */
const struct file *gs_file_holder(const struct file *file)
{
	struct gs_file *record = gs_file_find(file);

	return record && record->holder ? record->holder : file;
}

/**
 * gs_file_opened() - Remember a file that the driver has just opened.
 * @record: A record from gs_file_new(), which this takes over. No call was made on the file so far.
 */
void gs_file_opened(struct gs_file *record)
{
	mutex_lock(&gs_lock);
	record = gs_file_add(record);
	record->is_seen = gs_files_are_seen;
	record->holder = NULL;
	mutex_unlock(&gs_lock);
}

static void gs_file_remove(struct gs_file *record)
{
	hash_del(&record->hash);
	gs_carried_drop_all(&record->carried);
	kfree(record);
}

/**
 * gs_file_closed() - Forget a file that the driver has released.
 * @file: The file, which is only compared.
 */
void gs_file_closed(const struct file *file)
{
	struct gs_file *record;

	mutex_lock(&gs_lock);
	record = gs_file_find(file);
	if (record)
		gs_file_remove(record);
	mutex_unlock(&gs_lock);
}

/**
 * gs_files_see() - Note whether every call goes through the filter from now on.
 * @is_seen: False if calls may pass unseen, on files that are open too.
 */
void gs_files_see(bool is_seen)
{
	struct gs_file *record;
	int bucket;

	mutex_lock(&gs_lock);
	gs_files_are_seen = is_seen;
	hash_for_each(gs_files, bucket, record, hash)
		record->is_seen &= is_seen;
	mutex_unlock(&gs_lock);
}

/**
 * gs_files_forget() - Forget all files: nothing watches the driver.
 */
void gs_files_forget(void)
{
	struct gs_file *record;
	struct hlist_node *next;
	int bucket;

	mutex_lock(&gs_lock);
	hash_for_each_safe(gs_files, bucket, next, record, hash)
		gs_file_remove(record);
	mutex_unlock(&gs_lock);
}
