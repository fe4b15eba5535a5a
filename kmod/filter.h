/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The filter: every ioctl of the driver passes gs_filter_ioctl(). One that is looked at becomes a
 * gs_call: its argument is copied once, and all that is decided is decided on the copy.
 */
#ifndef GPUSHARE_FILTER_H
#define GPUSHARE_FILTER_H

#include <linux/fs.h>

#include "rm_call.h"
#include "state.h"

typedef long (*gs_ioctl_fn)(struct file *file, unsigned int cmd, unsigned long arg);

/**
 * struct gs_call - one ioctl that is looked at
 * @driver: to be called for it
 * @file: see @driver
 * @cmd: see @driver
 * @arg: see @driver
 * @nr: number of the command, of an XFER the one inside
 * @size: of its argument
 * @user: its argument
 * @rm: what it asks for
 * @bytes: the copy that @rm was read from; if it was pinned, the driver's answer in the end
 * @params: the part of its parameters that is of interest; zero behind what the caller gave
 * @process: the caller, with a reference
 * @client: whose order is held, with a reference; NULL when it is not known
 * @source: DUP: the same for the client of what is duplicated, unless it is @client
 * @task: the caller; this and the rest belong to pin.c
 * @pin: in the table of calls in progress
 * @is_pinned: RM was given @bytes for its argument
 */
struct gs_call {
	gs_ioctl_fn driver;
	struct file *file;
	unsigned int cmd;
	unsigned long arg;
	u32 nr;
	u32 size;
	u8 __user *user;
	struct rm_call rm;
	u8 bytes[RM_ARG_MAX] __aligned(8);
	union {
		u64 value;
		struct rm_device_params device;
		struct rm_group_params group;
		struct rm_memory_params memory;
	} params;
	struct gs_process *process;
	struct gs_client *client;
	struct gs_client *source;
	struct task_struct *task;
	struct hlist_node pin;
	bool is_pinned;
};

/**
 * struct gs_answer - what the driver said
 * @ret: of the ioctl
 * @is_made: the object asked for exists, or may exist
 * @is_done: what was asked for happened for certain
 * @status: RM status
 * @rm: the argument as it stands now
 */
struct gs_answer {
	long ret;
	bool is_made;
	bool is_done;
	u32 status;
	struct rm_call rm;
};

/* filter.c */
bool gs_rm_is_of_interest(const struct rm_call *rm);
long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, gs_ioctl_fn driver);
void gs_call_driver(struct gs_call *call, struct gs_answer *answer);
long gs_call_refuse(const struct gs_call *call, u32 status);
int gs_call_read_params(struct gs_call *call);
s32 gs_call_fd(const struct gs_call *call);
bool gs_refusal_is_reported(struct gs_process *process, u64 *repeats);

/* filter_control.c, filter_alloc.c, filter_free.c: each with a process, without gs_lock */
long gs_filter_control(struct gs_call *call);
long gs_filter_client(struct gs_call *call);
long gs_filter_alloc(struct gs_call *call);
long gs_filter_dup(struct gs_call *call);
long gs_filter_free(struct gs_call *call);

#endif /* GPUSHARE_FILTER_H */
