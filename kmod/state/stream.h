/* SPDX-License-Identifier: GPL-2.0 */
/* The event stream and the registration behind /dev/gpushare; see uapi/gpushare.h. */
#ifndef GPUSHARE_STREAM_H
#define GPUSHARE_STREAM_H

#include <linux/poll.h>

#include "state/state.h"

struct gs_stream;

/* chardev.c opens and closes it */
struct gs_stream *gs_stream_open(void);
void gs_stream_close(struct gs_stream *stream);
__poll_t gs_stream_poll(struct gs_stream *stream, struct file *file, poll_table *wait);
int gs_stream_mmap(struct gs_stream *stream, struct vm_area_struct *vma);
void gs_stream_query(struct gpushare_query *query);

extern struct gs_stream *gs_stream; /* the open one, or NULL */

/* With gs_lock held: an event is written to the open stream, if there is one. */
static inline bool gs_stream_is_open(void)
{
	lockdep_assert_held(&gs_lock);
	return gs_stream;
}

void gs_event_init(struct gpushare_event *event, enum gpushare_event_kind kind,
		   const struct gs_process *process);
void gs_event_send(struct gpushare_event *event);

#endif /* GPUSHARE_STREAM_H */
