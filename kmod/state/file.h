/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's files. A control file may be registered to another one, for whose clients it speaks
 * from then on: a client that is made on it belongs to the other, and lives until that is released.
 * All functions need gs_lock unless they say otherwise.
 */
#ifndef GPUSHARE_FILE_H
#define GPUSHARE_FILE_H

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/types.h>

#include "news/lock.h"

#define GS_CONTROL_MINOR 255 /* of /dev/nvidiactl */

/* What a file is registered to whose descriptor led nowhere; it has no clients. */
#define GS_FILE_NOBODY ((const struct file *)ERR_PTR(-EBADF))

/**
 * struct gs_file - An open file of the driver.
 * @hash: The place in the table by @file.
 * @file: The file, which is compared and never dereferenced.
 * @holder: The control file that it speaks for, NULL if it is not registered to another. The driver
 *	keeps that file open as long as this one.
 * @makers: The number of clients that the driver is making on it at present.
 * @carried: What objects in it hold: see state/carried.h.
 * @is_seen: Every call on it went through the filter, so all of its clients are known.
 */
struct gs_file {
	struct hlist_node hash;
	const struct file *file;
	const struct file *holder;
	unsigned int makers;
	struct list_head carried;
	bool is_seen;
};

struct gs_file *gs_file_new(const struct file *file); /* without gs_lock */
void gs_file_discard(struct gs_file *record);         /* as well */
struct gs_file *gs_file_find(const struct file *file);
struct gs_file *gs_file_add(struct gs_file *record);
bool gs_file_is_seen(const struct file *file);
const struct file *gs_file_holder(const struct file *file);

static inline bool gs_file_is_control(const struct file *file)
{
	return iminor(file_inode(file)) == GS_CONTROL_MINOR;
}

/* hook/hook.c and hook/entries.c call these without gs_lock. */
void gs_file_opened(struct gs_file *record);
void gs_file_closed(const struct file *file);
void gs_files_see(bool is_seen);
void gs_files_forget(void);

#endif /* GPUSHARE_FILE_H */
