// SPDX-License-Identifier: GPL-2.0
/*
 * The ring of events that the agent maps. There is one stream at a time. The module writes it under
 * gs_stream_lock, and the agent reads it without a system call. The module does not trust `tail`,
 * the agent's own word: with a value that makes no sense the ring counts as full.
 */
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>

#include "compat/version.h"
#include "news/stream.h"

#define GS_RECORDS 32768 /* 4 MiB, enough to replay some hundred programs */
#define GS_PRODUCER_OFFSET 0UL
#define GS_CONSUMER_OFFSET PAGE_SIZE
#define GS_RECORDS_OFFSET (2 * PAGE_SIZE)
#define GS_RECORDS_BYTES PAGE_ALIGN(GS_RECORDS * sizeof(struct gpushare_event))

static_assert(sizeof(struct gpushare_event) == 128);
static_assert((GS_RECORDS & (GS_RECORDS - 1)) == 0);

struct gs_stream {
	struct gpushare_producer *producer;
	struct gpushare_consumer *consumer;
	struct gpushare_event *records;
	struct pid_namespace *pid_ns;
	u64 head;
	u64 lost;
	wait_queue_head_t wait;
};

static DEFINE_SPINLOCK(gs_stream_lock);
struct gs_stream *gs_stream; /* It is written under gs_stream_lock. */

static void gs_stream_set(struct gs_stream *stream)
{
	spin_lock(&gs_stream_lock);
	WRITE_ONCE(gs_stream, stream);
	spin_unlock(&gs_stream_lock);
}

/* Frees a stream without its pid namespace; any of its areas may be NULL. */
static void gs_stream_free(struct gs_stream *stream)
{
	vfree(stream->records);
	vfree(stream->consumer);
	vfree(stream->producer);
	kfree(stream);
}

/**
 * gs_stream_open() - Make the stream.
 *
 * The caller makes sure that no other stream is open.
 *
 * Return: The stream, or ERR_PTR(-ENOMEM).
 */
struct gs_stream *gs_stream_open(void)
{
	struct gs_stream *stream = kzalloc(sizeof(*stream), GFP_KERNEL);

	if (!stream)
		return ERR_PTR(-ENOMEM);
	stream->producer = vmalloc_user(PAGE_SIZE);
	stream->consumer = vmalloc_user(PAGE_SIZE);
	stream->records = vmalloc_user(GS_RECORDS_BYTES);
	if (!stream->producer || !stream->consumer || !stream->records) {
		gs_stream_free(stream);
		return ERR_PTR(-ENOMEM);
	}
	stream->producer->uapi_version = GPUSHARE_UAPI_VERSION;
	stream->producer->record_bytes = sizeof(struct gpushare_event);
	stream->producer->record_count = GS_RECORDS;
	stream->pid_ns = get_pid_ns(task_active_pid_ns(current));
	init_waitqueue_head(&stream->wait);
	gs_stream_set(stream);
	return stream;
}

/**
 * gs_stream_close() - End the stream, which no program maps or polls any more.
 * @stream: The stream from gs_stream_open().
 */
void gs_stream_close(struct gs_stream *stream)
{
	gs_stream_set(NULL);
	put_pid_ns(stream->pid_ns);
	gs_stream_free(stream);
}

/**
 * gs_stream_query() - Fill in what GPUSHARE_IOC_QUERY answers.
 * @query: Out: all members.
 */
void gs_stream_query(struct gpushare_query *query)
{
	*query = (struct gpushare_query){
		.uapi_version = GPUSHARE_UAPI_VERSION,
		.record_bytes = sizeof(struct gpushare_event),
		.record_count = GS_RECORDS,
		.producer_offset = GS_PRODUCER_OFFSET,
		.producer_bytes = PAGE_SIZE,
		.consumer_offset = GS_CONSUMER_OFFSET,
		.consumer_bytes = PAGE_SIZE,
		.records_offset = GS_RECORDS_OFFSET,
		.records_bytes = GS_RECORDS_BYTES,
		.module_version = GS_VERSION,
	};
}

/**
 * gs_stream_poll() - Tell poll() whether there are records.
 * @stream: The stream of the file.
 * @file: The file that is polled.
 * @wait: The table of poll().
 *
 * Return: EPOLLIN while there are records, otherwise 0.
 */
__poll_t gs_stream_poll(struct gs_stream *stream, struct file *file, poll_table *wait)
{
	poll_wait(file, &stream->wait, wait);
	/*
	 * Either gs_stream_write() sees the waiting program or its record is seen here: this pairs
	 * with the barrier in wq_has_sleeper().
	 */
	smp_mb();
	/* This pairs with the release of head in gs_stream_write(), before its wake-up. */
	if (smp_load_acquire(&stream->producer->head) != READ_ONCE(stream->consumer->tail))
		return EPOLLIN | EPOLLRDNORM;
	return 0;
}

/**
 * gs_stream_mmap() - Map one of the three areas.
 * @stream: The stream of the file.
 * @vma: One whole area. Only the consumer's may be writable.
 *
 * Return: 0, -EINVAL for anything that is not an area, or -EACCES if it must not be writable.
 */
int gs_stream_mmap(struct gs_stream *stream, struct vm_area_struct *vma)
{
	unsigned long bytes = vma->vm_end - vma->vm_start;
	void *area;

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	switch (vma->vm_pgoff) {
	case GS_PRODUCER_OFFSET >> PAGE_SHIFT:
		area = bytes == PAGE_SIZE ? stream->producer : NULL;
		break;
	case GS_CONSUMER_OFFSET >> PAGE_SHIFT:
		area = bytes == PAGE_SIZE ? stream->consumer : NULL;
		break;
	case GS_RECORDS_OFFSET >> PAGE_SHIFT:
		area = bytes == GS_RECORDS_BYTES ? stream->records : NULL;
		break;
	default:
		area = NULL;
	}
	if (!area)
		return -EINVAL;
	if (area != stream->consumer) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		gs_vm_flags_clear(vma, VM_MAYWRITE);
	}
	return remap_vmalloc_range(vma, area, 0);
}

/**
 * gs_event_init() - Begin an event.
 * @event: Out: the caller fills in what the kind needs.
 * @kind: What happened.
 */
void gs_event_init(struct gpushare_event *event, enum gpushare_event_kind kind)
{
	*event = (struct gpushare_event){ .kind = kind };
}

static void gs_stream_write(struct gs_stream *stream, const struct gpushare_event *event)
{
	u64 tail;

	lockdep_assert_held(&gs_stream_lock);
	/* This pairs with the agent's release: what it has read may be overwritten. */
	tail = smp_load_acquire(&stream->consumer->tail);
	if (stream->head - tail >= GS_RECORDS) {
		WRITE_ONCE(stream->producer->lost, ++stream->lost);
	} else {
		stream->records[stream->head % GS_RECORDS] = *event;
		/* This pairs with the agent's acquire: the record comes first. */
		smp_store_release(&stream->producer->head, ++stream->head);
	}
	if (wq_has_sleeper(&stream->wait)) /* pairs with the barrier in gs_stream_poll() */
		wake_up_interruptible(&stream->wait);
}

/**
 * gs_event_send() - Write an event into the ring and wake the agent.
 * @event: An event from gs_event_init().
 * @process: The process that the event is about, NULL for none. The event is dropped if the agent's
 *	pid namespace does not show it, because the agent could not name it.
 */
void gs_event_send(struct gpushare_event *event, const struct gs_identity *process)
{
	if (!gs_stream_is_open())
		return;
	spin_lock(&gs_stream_lock);
	if (!gs_stream)
		goto unlock;
	event->time_ns = ktime_get_ns();
	if (process) {
		event->pid = pid_nr_ns(process->pid, gs_stream->pid_ns);
		event->start_ticks = process->start_ticks;
	}
	if (event->pid || !process)
		gs_stream_write(gs_stream, event);
unlock:
	spin_unlock(&gs_stream_lock);
}
