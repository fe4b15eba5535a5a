/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One ioctl of the driver that the filter looks at. The filter decides on copies of the argument
 * and of what matters in its parameters, and pin.c makes the driver act on these copies.
 */
#ifndef GPUSHARE_CALL_H
#define GPUSHARE_CALL_H

#include <linux/processor.h> /* list_bl.h wants it */
#include <linux/list_bl.h>
#include <linux/uaccess.h>

#include "driver/divert.h"
#include "rm/rm_params.h"

struct gs_buffering;
struct gs_client;
struct gs_file;
struct gs_object;
struct gs_process;

/**
 * struct gs_call - A call.
 * @file: The file, as the driver gets it.
 * @cmd: The command, as the driver gets it.
 * @arg: The argument, as the driver gets it.
 * @driver: The driver's function, of gs_sites[].
 * @nr: The number of the command; of an XFER that of the command inside.
 * @size: The size of its argument.
 * @user: The address of its argument in the caller's memory.
 * @rm: What it asks for.
 * @bytes: The copy that @rm was read from, and in the end the driver's answer, but of an EXPORT.
 * @wanted: Which of its parameters matter, and are pinned.
 * @params: Their values, and in the end RM's answer.
 * @process: The caller, with a reference. This and the members up to @parent are the filter's.
 * @client: The client, with a reference; of what is made or freed its order is held. NULL if it is
 *	not known.
 * @holder: The file whose clients @file speaks for, once it was looked up.
 * @source: DUP: the same for the client of the original, unless it is @client.
 * @new_client: ALLOC of a client: memory for it.
 * @new_file: ALLOC of a client: memory for a record of @file; of a control that carries objects for
 *	one of @carrier.
 * @object: ALLOC, DUP: the object to be remembered, with a reference.
 * @parent: The parent of @object, with a reference; NULL if it is not known.
 * @task: The caller's task. This and the members below are pin.c's.
 * @pin: The place in the table of calls in progress.
 * @buffering: EXPORT: the names that RM takes; otherwise NULL.
 * @carried: A control that carries objects: memory for RM's whole answer; otherwise NULL.
 * @carrier: The file that RM has taken them from or put them into, with a reference, or NULL.
 * @is_pinned: RM was given @bytes for its argument.
 * @is_params_answer: RM has answered in @params.
 */
struct gs_call {
	struct file *file;
	unsigned int cmd;
	unsigned long arg;
	unsigned long driver;
	u32 nr;
	u32 size;
	u8 __user *user;
	struct rm_call rm;
	u8 bytes[RM_ARG_MAX] __aligned(8);
	struct rm_params_place wanted;
	struct rm_params params;
	struct gs_process *process;
	struct gs_client *client;
	const struct file *holder;
	struct gs_client *source;
	struct gs_client *new_client;
	struct gs_file *new_file;
	struct gs_object *object;
	struct gs_object *parent;
	struct task_struct *task;
	struct hlist_bl_node pin;
	struct gs_buffering *buffering;
	void *carried;
	struct file *carrier;
	bool is_pinned;
	bool is_params_answer;
};

/**
 * struct gs_answer - What the driver said to a call.
 * @ret: What the ioctl returned.
 * @is_done: What was asked for has happened.
 * @status: The RM status, GS_STATUS_NONE if RM did not come to it.
 */
struct gs_answer {
	long ret;
	bool is_done;
	u32 status;
};

#define GS_STATUS_NONE 0xFFFFFFFFu /* RM has no such status. */

void gs_call_driver(struct gs_call *call, struct gs_answer *answer);
long gs_call_driver_without_status(struct gs_call *call);
long gs_call_driver_unpinned(struct gs_call *call);
void gs_call_driver_at_once(struct gs_call *call, struct gs_answer *answer);

/* Calls the driver's own function with what the caller gave, and returns what that returns. */
static inline long gs_call_original(const struct gs_call *call)
{
	return gs_divert_original((unsigned long)call->file, call->cmd, call->arg, call->driver);
}

/**
 * gs_call_refuse() - Answer instead of the driver.
 * @call: A call that the driver will not see.
 * @status: The RM status for its argument.
 *
 * Return: What the ioctl returns: 0 as the driver would, or -EFAULT.
 */
static inline long gs_call_refuse(const struct gs_call *call, u32 status)
{
	return put_user(status, (u32 __user *)(call->user + call->rm.status_offset));
}

#endif /* GPUSHARE_CALL_H */
