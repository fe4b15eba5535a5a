/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stream of events behind /dev/gpushare; uapi/gpushare.h is the contract. dev/chardev.c opens
 * and closes it; everything that has something to report writes events, under a lock of its own
 * that keeps the order of what it reports. The ring has a lock of its own, too.
 */
#ifndef GPUSHARE_STREAM_H
#define GPUSHARE_STREAM_H

#include <linux/poll.h>

#include "news/lock.h"
#include "uapi/gpushare.h"

struct gs_stream;

/**
 * struct gs_identity - What names a process in an event.
 * @pid: The pid of the thread group.
 * @start_ticks: Field 22 of /proc/PID/stat.
 */
struct gs_identity {
	struct pid *pid;
	u64 start_ticks;
};

/* dev/chardev.c calls these without gs_lock. */
struct gs_stream *gs_stream_open(void);
void gs_stream_close(struct gs_stream *stream);
__poll_t gs_stream_poll(struct gs_stream *stream, struct file *file, poll_table *wait);
int gs_stream_mmap(struct gs_stream *stream, struct vm_area_struct *vma);
void gs_stream_query(struct gpushare_query *query);

extern struct gs_stream *gs_stream; /* the stream that is open, or NULL */

/* True if events are written anywhere. If it is false, a stream that is opened now begins later. */
static inline bool gs_stream_is_open(void)
{
	return READ_ONCE(gs_stream);
}

void gs_event_init(struct gpushare_event *event, enum gpushare_event_kind kind);
void gs_event_send(struct gpushare_event *event, const struct gs_identity *process);

#endif /* GPUSHARE_STREAM_H */
