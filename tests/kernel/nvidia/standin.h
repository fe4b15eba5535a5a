/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for NVIDIA's nvidia.ko: the part of the resource manager (RM) that gpushare's programs
 * and a CUDA program's start-up speak to, with a simulated runlist behind it. It has no hardware
 * and does no work. It answers and refuses what the real driver was seen to answer and refuse.
 *
 *   chardev.c  the device files; the ioctl entry with the real driver's function name
 *   object.c   clients and their objects by handle: made, freed, found
 *   alloc.c    what each class needs when it is made; memory and its accounting
 *   control.c  RM_CONTROL
 *   kept/carry.c    memory in control files
 *   kept/names.c    names that RM has for memory; uvm.c is nvidia_uvm, as drm.c is nvidia_drm
 *   kept/dma_buf.c  memory in DMA buffers
 *   runlist.c  which group is on the GPU at what time; makes the switch records
 *   buffer.c   event buffers: the switch log as user space maps it
 *   report.c   /proc/nvidia-standin, for tests
 *
 * One mutex, sn_lock, guards everything below except struct sn_file's mapping. The ioctl entry,
 * release() and report.c take it, and nothing else here does. mmap() must not, because user memory
 * is copied with sn_lock held.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "standin_abi.h"

#define SN_MAX_GPUS 4
#define SN_SWITCH_COST_NS 80000 /* measured on an H200 */

extern struct mutex sn_lock;

/* Video memory is only counted; event buffers have real memory. Objects share it by DUP_OBJECT. */
struct sn_memory {
	struct kref refs;
	struct sn_gpu *gpu; /* whose video memory it takes; NULL: system memory */
	u64 bytes;
	void *pages; /* vmalloc_user() of `bytes`; NULL unless class 0x90CE */
};

struct sn_runlist {
	struct list_head groups;   /* sn_group.in_runlist, next first */
	struct sn_group *resident; /* whose context is loaded, also when it has nothing to do */
	u64 at;                    /* simulated up to here, as every time: sn_gpu_time() */
	u64 turn_end;              /* of the resident, if others wait */
	u64 ready_at;              /* nobody resident: earliest start of the next */
};

struct sn_gpu {
	unsigned int minor;
	u32 id, instance;
	u64 memory_used;
	struct sn_runlist runlist;
	struct list_head buffers; /* sn_buffer.in_gpu */
	u16 next_seqno;
};

/* An open device file. Every client is made on a file, and goes with it. */
struct sn_file {
	unsigned int minor;
	struct list_head clients;  /* sn_client.in_file */
	struct sn_file *control;   /* that for whose clients it speaks, or NULL; set once */
	struct file *control_holder; /* keeps @control open */
	struct sn_memory **places; /* what is in it, by place; NULL: it has no places */
	u32 places_count;
	struct sn_memory *mapping; /* set once, by RM_MAP_MEMORY, and kept until release */
};

struct sn_client {
	u32 handle;
	pid_t pid; /* of the process that made it, in the initial pid namespace */
	bool has_attached;
	struct sn_file *file;
	struct list_head in_file;
	struct list_head objects; /* sn_object.in_client, newest first; its root object too */
};

struct sn_object {
	u32 handle, parent, class_id;
	struct sn_client *client;
	struct sn_gpu *gpu; /* of a device and below, else NULL */
	struct hlist_node by_handle;
	struct list_head in_client;
	union { /* by class; NULL for the others */
		struct sn_group *group; /* NULL once it was freed by its first name */
		struct sn_channel *channel;
		struct sn_memory *memory;
		struct sn_buffer *buffer;
	};
};

struct sn_group {
	struct sn_object *object;
	u32 engine;
	u64 slice_us;
	bool is_scheduled;
	struct sn_object *duplicate; /* a second name, or NULL */
	struct list_head in_runlist;
	struct list_head channels; /* sn_channel.in_group */
	u64 ran_ns;
};

struct sn_channel {
	struct sn_object *object;
	struct sn_group *group; /* NULL once the group was freed */
	struct list_head in_group;
	u32 freezes;
	bool is_busy;
	u32 preemption; /* the mode in which its kernels leave the GPU; 0: when they have ended */
};

struct sn_buffer {
	struct sn_gpu *gpu;
	struct list_head in_gpu;
	struct sn_memory *header, *records;
	u32 count, put;
	bool is_bound, is_enabled;
};

/* --- chardev.c ------------------------------------------------------------------------------ */
extern struct sn_gpu sn_gpus[SN_MAX_GPUS];
extern unsigned int sn_gpu_count;
extern char *sn_version;
extern unsigned int sn_params_delay_ms;
extern bool sn_is_shared;
extern u64 sn_calls; /* ioctls since load */
struct sn_gpu *sn_gpu_by_id(u32 id);
struct sn_gpu *sn_gpu_by_instance(u32 instance);
u64 sn_memory_bytes(void); /* of each GPU */
/* A caller's parameters, in and out; both return RM's status. */
u32 os_memcpy_from_user(void *to, const void *from, u32 bytes);
u32 os_memcpy_to_user(void *to, const void *from, u32 bytes);
/* The file behind a descriptor of the caller, or NULL if it is not ours. fput(*file) after use. */
struct sn_file *sn_file_get(int fd, struct file **file);

/* --- object.c ------------------------------------------------------------------------------- */
/* The client, or NULL if @file is neither its own nor a GPU's that is registered for it. */
struct sn_client *sn_client_of(const struct sn_file *file, u32 handle);
struct sn_object *sn_find(u32 client, u32 handle);
/* These return a status of the driver. If *handle is 0 a handle is chosen. */
u32 sn_client_make(struct sn_file *file, u32 class_id, u32 *handle);
u32 sn_object_make(struct sn_client *client, u32 parent, u32 *handle, u32 class_id,
		   struct sn_object **made);
/* Frees everything below it too. @object may be a client's root. */
void sn_object_free(struct sn_object *object);
void sn_file_free_clients(struct sn_file *file);
/* The order is not defined. @visit must not make or free objects. */
void sn_for_each_object(void (*visit)(struct sn_object *object, void *data), void *data);

/* An ioctl handler, which puts what @_answer returns into the status of the argument. */
#define SN_HANDLER(_name, _type, _answer)                                                          \
	int _name(struct sn_file *file, void *arg)                                                 \
	{                                                                                          \
		struct _type *call = arg;                                                          \
                                                                                                   \
		call->status = _answer(file, call);                                                \
		return 0;                                                                          \
	}

/* --- alloc.c: ioctl handlers ---------------------------------------------------------------- */
int sn_rm_alloc(struct sn_file *file, void *arg);   /* struct gs_nvos64 */
int sn_rm_alloc21(struct sn_file *file, void *arg); /* struct gs_nvos21 */
int sn_rm_alloc_object(struct sn_file *file, void *arg);
int sn_rm_alloc_memory(struct sn_file *file, void *arg);
int sn_rm_heap(struct sn_file *file, void *arg);
int sn_rm_dup(struct sn_file *file, void *arg);
int sn_rm_free(struct sn_file *file, void *arg);
int sn_rm_map(struct sn_file *file, void *arg);
void sn_object_clear(struct sn_object *object); /* frees what the union points to */
void sn_memory_put(struct sn_memory *memory);

/* --- kept/names.c -------------------------------------------------------------------------- */
u32 sn_name_memory(u32 client, u32 memory, u32 *handle, struct sn_memory **named);
u32 sn_name_drop(u32 handle);

/* --- kept/dma_buf.c: an ioctl handler; it comes without sn_lock ------------------------------ */
int sn_export_dma_buf(struct sn_file *file, void *arg); /* struct dma_buf_export */

/* --- kept/carry.c --------------------------------------------------------------------------- */
void sn_file_empty(struct sn_file *file);

/* --- control.c ------------------------------------------------------------------------------ */
int sn_rm_control(struct sn_file *file, void *arg);

/* --- runlist.c: each call first lets the GPU run up to now ---------------------------------- */
u64 sn_gpu_time(void);
void sn_runlist_init(struct sn_runlist *runlist);
void sn_runlist_advance(struct sn_gpu *gpu);
/* Comes after any change of what a group may do. A frozen group leaves the GPU at once. */
void sn_runlist_settle(struct sn_gpu *gpu);
void sn_runlist_preempt(struct sn_group *group);
void sn_runlist_remove(struct sn_group *group);

/* --- buffer.c ------------------------------------------------------------------------------- */
void sn_log_switch(struct sn_group *group, u8 tag, u64 time);
void sn_buffer_free(struct sn_buffer *buffer);
void sn_buffer_publish(struct sn_buffer *buffer);

/* --- report.c ------------------------------------------------------------------------------- */
int sn_report_init(void);
void sn_report_exit(void);

#endif /* STANDIN_H */
