// SPDX-License-Identifier: GPL-2.0
/*
 * A file is registered to a control file, for whose clients it speaks from then on. libcuda does so
 * with each file of a GPU, on which no client can be made. A control file that is registered to
 * another one passes too, but no client can be made on it: the driver would keep that client until
 * the other file is released.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "driver/call.h"
#include "filter/verdicts.h"
#include "state/file.h"

/*
 * The file behind a descriptor of the caller, which is only compared. The driver looks once more
 * and may find another file, because another thread can change what the descriptor leads to. Then a
 * client is found by none of both: here it would have to be of this file, and for the driver of the
 * other.
 */
static const struct file *gs_register_holder(s32 fd)
{
	struct file *file = fd < 0 ? NULL : fget(fd);

	if (!file)
		return GS_FILE_NOBODY;
	fput(file);
	return file;
}

/* Undoes gs_register_begin() for a file that the driver did not register. */
static void gs_register_undo(const struct file *file)
{
	struct gs_file *record;

	mutex_lock(&gs_lock);
	record = gs_file_find(file);
	if (record)
		record->holder = NULL;
	mutex_unlock(&gs_lock);
}

/*
 * Notes what a control file is about to be registered to. Returns 1, or 0 if it was registered
 * before, which the driver will refuse, or a negative errno.
 */
static int gs_register_begin(const struct gs_call *call)
{
	const struct file *holder = gs_register_holder(call->rm.fd);
	struct gs_file *record = gs_file_new(call->file);
	int is_first;

	if (!record)
		return -ENOMEM;
	mutex_lock(&gs_lock);
	record = gs_file_add(record);
	is_first = record->makers ? -EBUSY : !record->holder;
	if (is_first == 1)
		record->holder = holder;
	mutex_unlock(&gs_lock);
	return is_first;
}

/**
 * gs_filter_register() - Let a file speak for the clients of another.
 * @call: A call of kind REGISTER.
 *
 * Return: What the ioctl returns; -EBUSY while a client is being made on the file.
 */
long gs_filter_register(struct gs_call *call)
{
	bool is_refused;
	int is_first;
	long ret;

	if (!gs_file_is_control(call->file))
		return gs_call_driver_without_status(call);
	is_first = gs_register_begin(call);
	if (is_first < 0)
		return is_first;
	ret = gs_call_driver_without_status(call);
	is_refused = !call->is_pinned || ret == -EINVAL;
	if (is_first && is_refused)
		gs_register_undo(call->file);
	return ret;
}
