/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The filter: every ioctl of the driver that is of interest passes gs_filter_ioctl(). It becomes a
 * gs_call: its argument, and of its parameters what matters, are copied once, all that is decided
 * is decided on these copies, and the driver is made to act on them (pin.c).
 */
#ifndef GPUSHARE_FILTER_H
#define GPUSHARE_FILTER_H

#include <linux/fs.h>
#include <linux/list_bl.h>

#include "driver/divert.h"
#include "rm/rm_call.h"
#include "state/state.h"

/**
 * struct gs_call - one ioctl that is looked at
 * @file: as the driver gets it
 * @cmd: see @file
 * @arg: see @file
 * @driver: the driver's function, of gs_sites[]
 * @nr: number of the command, of an XFER the one inside
 * @size: of its argument
 * @user: its argument
 * @rm: what it asks for
 * @bytes: the copy that @rm was read from; the driver's answer in the end
 * @wanted: what of its parameters is of interest, and pinned
 * @params: that; RM's answer in the end
 * @process: the caller, with a reference
 * @client: whose order is held, with a reference; FREE: NULL when it is not known
 * @source: DUP: the same for the client of what is duplicated, unless it is @client
 * @new_client: ALLOC of a client: memory for it
 * @object: ALLOC, DUP: to be remembered, with a reference
 * @parent: of that, with a reference; NULL when it is not known
 * @task: the caller; this and the rest belong to pin.c
 * @pin: in the table of calls in progress
 * @is_pinned: RM was given @bytes for its argument
 * @is_params_answer: RM has answered in @params
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
	struct gs_client *source;
	struct gs_client *new_client;
	struct gs_object *object;
	struct gs_object *parent;
	struct task_struct *task;
	struct hlist_bl_node pin;
	bool is_pinned;
	bool is_params_answer;
};

/**
 * struct gs_answer - what the driver said
 * @ret: of the ioctl
 * @is_done: what was asked for has happened
 * @status: RM status; GS_STATUS_NONE when RM did not come to it
 */
struct gs_answer {
	long ret;
	bool is_done;
	u32 status;
};

#define GS_STATUS_NONE 0xFFFFFFFFu /* none of RM's */
#define GS_CONTROL_MINOR 255       /* of /dev/nvidiactl */

/* The driver's own function, with what the caller gave. */
static inline long gs_call_original(const struct gs_call *call)
{
	return gs_divert_original((unsigned long)call->file, call->cmd, call->arg, call->driver);
}

/* filter.c */
long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, unsigned long driver);
long gs_call_refuse(const struct gs_call *call, u32 status);
long gs_call_not_entered(const struct gs_call *call, int err);
s32 gs_call_fd(const struct gs_call *call);
bool gs_refusal_is_reported(struct gs_process *process, u64 *repeats);

/* pin.c */
void gs_call_driver(struct gs_call *call, struct gs_answer *answer);
void gs_call_driver_at_once(struct gs_call *call, struct gs_answer *answer);

/* filter_order.c: before, and after what is done about a call; gs_lock is held between */
int gs_call_enter(struct gs_call *call);
int gs_call_enter_in_order(struct gs_call *call);
void gs_call_leave(struct gs_call *call);

/* filter_control.c, filter_alloc.c, filter_free.c: each without gs_lock */
long gs_filter_control(struct gs_call *call);
long gs_filter_client(struct gs_call *call);
long gs_filter_alloc(struct gs_call *call);
long gs_filter_dup(struct gs_call *call);
long gs_filter_free(struct gs_call *call);

#endif /* GPUSHARE_FILTER_H */
