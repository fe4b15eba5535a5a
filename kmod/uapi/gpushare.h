/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/gpushare: what the kernel module and the agent say to each other. This is the one header of
 * the module that user space includes, from C and C++.
 *
 * The device has one opener at a time, which needs CAP_SYS_ADMIN; a second one gets -EBUSY. What is
 * done through the file lasts as long as the file: the registration, the events, gpus/ and `policy`
 * in sysfs end when its last descriptor is closed. Tenants and their settings stay.
 *
 * These rules hold for every structure. Members have fixed widths, and there is no implicit
 * padding. Members named reserved* must be zero, and unknown flags are refused, both with -EINVAL.
 * Strings are zero-terminated within their array. Times are CLOCK_MONOTONIC. Numbers and layouts
 * never change within a version: a caller whose GPUSHARE_UAPI_VERSION is not the one that
 * GPUSHARE_IOC_QUERY returns must go no further.
 */
#ifndef GPUSHARE_UAPI_H
#define GPUSHARE_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GPUSHARE_UAPI_VERSION 5
#define GPUSHARE_DEVICE_PATH "/dev/gpushare"
#define GPUSHARE_SYSFS_PATH "/sys/kernel/gpushare"

#define GPUSHARE_TENANT_NAME_BYTES 64 /* at most 63 characters */
#define GPUSHARE_COMM_BYTES 16
#define GPUSHARE_UUID_BYTES 48
#define GPUSHARE_WORD_BYTES 16 /* the name of a policy or of a way of sharing */
#define GPUSHARE_MAX_GPUS 32
#define GPUSHARE_UNKNOWN 0xFFFFFFFFu /* in a __u32: the agent does not know it */

/* --- ioctls --------------------------------------------------------------------------------- */

/*
 * It returns versions, and where the event ring lies for mmap() on this file. It works before
 * everything else and has no side effect.
 */
struct gpushare_query {
	__u32 uapi_version; /* out: GPUSHARE_UAPI_VERSION of the module */
	__u32 flags;        /* in: 0 */
	__u32 record_bytes; /* out: sizeof(struct gpushare_event) */
	__u32 record_count; /* out: records in the ring, a power of two */
	/* out: offsets and lengths of the three mappings, see "the event ring" */
	__u64 producer_offset, producer_bytes; /* PROT_READ, struct gpushare_producer */
	__u64 consumer_offset, consumer_bytes; /* and PROT_WRITE, struct gpushare_consumer */
	__u64 records_offset, records_bytes;   /* PROT_READ, struct gpushare_event[record_count] */
	char module_version[32];               /* out: as in sysfs `version` */
};

/*
 * The calling process becomes the agent. It and its descendants may use the scheduling controls
 * that are refused to all other processes, and their own calls make no events. A second call
 * replaces the first: the supervisor keeps the file, and a new agent registers after the old one
 * died.
 */
struct gpushare_register {
	__u32 flags; /* in: 0 */
	__u32 reserved;
};

/*
 * It writes an event for everything that the module knows of living processes, as if it happened
 * now, with GPUSHARE_EVENT_REPLAYED set. An agent needs this that starts while programs run. An
 * object that is created or freed meanwhile is reported as usual, after its replayed event.
 */
struct gpushare_replay {
	__u32 flags; /* in: 0 */
	__u32 reserved;
};

/* The parts of time in which processes wait for a GPU, in hundredths of a percent. */
struct gpushare_pressure {
	__u64 total_us; /* since the tenant was created */
	__u32 avg10;    /* of the last 10 seconds, 0 to 10000; older time counts less and less */
	__u32 avg60;
	__u32 avg300;
	__u32 reserved; /* 0 */
};

/*
 * What the read-only attributes of one tenant show, summed up since the tenant was created. Of a
 * GPU with 0 in by_gpu_us nothing is said, and what was published of it before stays.
 */
struct gpushare_usage {
	char tenant[GPUSHARE_TENANT_NAME_BYTES]; /* in */
	__u64 gpu_time_us;                       /* in: over all GPUs */
	__u64 throttled_us;                      /* in: time frozen by its cap */
	__u64 freezes;                           /* in */
	__u64 periods;                           /* in: of `max`, in which it had work */
	__u64 throttled_periods;                 /* in: those in which its cap froze it */
	__u64 turns;                             /* in: that its jobs had */
	__u64 held_us;                           /* in: time in which a job waited for its turn */
	struct gpushare_pressure some;           /* in: a process waits that has work */
	struct gpushare_pressure full;           /* in: all processes that have work wait */
	__u64 by_gpu_us[GPUSHARE_MAX_GPUS];      /* in: GPU time by RM's device instance */
	__u32 share_permille;                    /* in: last second; GPUSHARE_UNKNOWN allowed */
	__s32 result;                            /* out: 0, or -ENOENT for no such tenant */
};

/*
 * It publishes the usage of up to GPUSHARE_PUBLISH_MAX tenants. An entry that names no tenant gets
 * its `result` and does not stop the others.
 */
#define GPUSHARE_PUBLISH_MAX 1024
struct gpushare_publish {
	__u64 usages;      /* in: address of struct gpushare_usage[count] */
	__u32 count;       /* in */
	__u32 usage_bytes; /* in: sizeof(struct gpushare_usage) */
	__u32 flags;       /* in: 0 */
	__u32 reserved;
};

/* It makes or changes /sys/kernel/gpushare/gpus/<index>/. */
struct gpushare_gpu {
	__u32 flags;    /* in: 0 */
	__u32 index;    /* in: RM's device instance, below GPUSHARE_MAX_GPUS */
	__u32 sm_count; /* in: GPUSHARE_UNKNOWN allowed */
	__u32 reserved;
	__u64 memory_bytes; /* in */
	char uuid[GPUSHARE_UUID_BYTES];
	char sharing[GPUSHARE_WORD_BYTES]; /* "time-slicing", "mps", ... */
	char policy[GPUSHARE_WORD_BYTES];  /* that decides on this GPU */
};

/* It sets what sysfs `policy` shows: a name as a tenant's, of at most 15 characters. */
struct gpushare_policy {
	__u32 flags; /* in: 0 */
	__u32 reserved;
	char name[GPUSHARE_WORD_BYTES];
};

#define GPUSHARE_IOC_MAGIC 0xB7
#define GPUSHARE_IOC_QUERY _IOWR(GPUSHARE_IOC_MAGIC, 0, struct gpushare_query)
#define GPUSHARE_IOC_REGISTER _IOW(GPUSHARE_IOC_MAGIC, 1, struct gpushare_register)
#define GPUSHARE_IOC_REPLAY _IOW(GPUSHARE_IOC_MAGIC, 2, struct gpushare_replay)
#define GPUSHARE_IOC_PUBLISH _IOW(GPUSHARE_IOC_MAGIC, 3, struct gpushare_publish)
#define GPUSHARE_IOC_SET_GPU _IOW(GPUSHARE_IOC_MAGIC, 4, struct gpushare_gpu)
#define GPUSHARE_IOC_SET_POLICY _IOW(GPUSHARE_IOC_MAGIC, 5, struct gpushare_policy)

/* --- the event ring --------------------------------------------------------------------------- */

/*
 * Records [tail, head) are to be read; number n lies at records[n % record_count]. The module adds
 * at head. The agent alone moves tail, after it has read. A full ring loses the newest record and
 * counts it in `lost`. poll() reports POLLIN while head != tail. It is level triggered, so an agent
 * that waits for it again after it has read everything misses nothing.
 *
 *   head: loaded with acquire by the agent (pairs with the module's release after the record)
 *   tail: stored with release by the agent (pairs with the module's acquire before it overwrites)
 */
struct gpushare_producer {
	__u32 uapi_version;
	__u32 record_bytes;
	__u32 record_count;
	__u32 reserved;
	__u64 head; /* records written since the file was opened */
	__u64 lost; /* records dropped since then: the ring was full */
};

struct gpushare_consumer {
	__u64 tail;
};

enum gpushare_event_kind {
	GPUSHARE_EVENT_PROCESS_OPENED = 1,  /* `opened`: its first use of the driver, comes first */
	GPUSHARE_EVENT_PROCESS_CLOSED = 2,  /* no members: it exited or called exec */
	GPUSHARE_EVENT_PROCESS_MOVED = 3,   /* `moved`: it belongs to another tenant now */
	GPUSHARE_EVENT_CLIENT_CREATED = 4,  /* `object`: client, fd */
	GPUSHARE_EVENT_DEVICE_CREATED = 5,  /* `object`: client, object, instance */
	GPUSHARE_EVENT_GROUP_CREATED = 6,   /* `object`: client, parent, object, engine_type, fd */
	GPUSHARE_EVENT_CHANNEL_CREATED = 7, /* `object`: client, parent, object, class_id */
	GPUSHARE_EVENT_MEMORY_ALLOCATED = 8, /* `object`: client, parent, object, class_id, bytes */
	GPUSHARE_EVENT_OBJECT_FREED = 9,     /* `object`: client, object; all below it too */
	GPUSHARE_EVENT_CONTROL_MADE = 10,    /* `control`: about scheduling, answered or refused */
	GPUSHARE_EVENT_MEMORY_REFUSED = 11,  /* `memory_refused` */
	GPUSHARE_EVENT_SETTINGS_CHANGED = 12, /* `settings`: read sysfs again; pid is 0 */
};

/* The flags of an event. */
#define GPUSHARE_EVENT_REPLAYED (1u << 0) /* by GPUSHARE_IOC_REPLAY */
#define GPUSHARE_EVENT_REFUSED (1u << 1)  /* CONTROL_MADE: the driver never saw it */
#define GPUSHARE_EVENT_VIDEO (1u << 2)    /* MEMORY_ALLOCATED: always, it is video memory */
#define GPUSHARE_EVENT_BY_EXEC (1u << 3)  /* PROCESS_CLOSED: it replaced itself by exec */

enum gpushare_setting {
	GPUSHARE_SETTING_CREATED = 1, /* the tenant */
	GPUSHARE_SETTING_REMOVED = 2,
	GPUSHARE_SETTING_WEIGHT = 3,
	GPUSHARE_SETTING_MAX = 4,
	GPUSHARE_SETTING_PRIORITY = 5,
	GPUSHARE_SETTING_MEMORY_MAX = 6,
	GPUSHARE_SETTING_SM_PERCENT = 7,
	GPUSHARE_SETTING_SLO_US = 8,
	GPUSHARE_SETTING_MATCH_CGROUP = 9,
	GPUSHARE_SETTING_MATCH_UID = 10,
	GPUSHARE_SETTING_PROCS = 11, /* a process was attached */
	GPUSHARE_SETTING_CONTEXTS_MAX = 12,
	GPUSHARE_SETTING_FREEZE = 13,
	GPUSHARE_SETTING_GPU_MEMORY_MAX = 14,
	GPUSHARE_SETTING_LENGTH_US = 15,
	GPUSHARE_SETTING_ITERATIONS = 16,
	GPUSHARE_SETTING_PHASE = 17,
	GPUSHARE_SETTING_GANG = 18,
	GPUSHARE_SETTING_GPU_MAX = 19,
	GPUSHARE_SETTING_SM_MIN = 20,
	GPUSHARE_SETTING_SM_SHOWN = 21,
};

struct gpushare_event_opened {
	__u32 ns_pid;    /* in its own innermost pid namespace */
	__u32 uid;       /* in the initial user namespace */
	__u64 cgroup_id; /* cgroup v2, 0 unknown */
	char comm[GPUSHARE_COMM_BYTES];
	char tenant[GPUSHARE_TENANT_NAME_BYTES];
};

struct gpushare_event_moved {
	char tenant[GPUSHARE_TENANT_NAME_BYTES];
	__u8 reserved[32];
};

/* Members that the kind does not name are zero. Handles are those of RM. */
struct gpushare_event_object {
	__u32 client;
	__u32 parent; /* the device of a group or of memory, the group of a channel */
	__u32 object;
	__u32 class_id;
	__u64 bytes;       /* as the driver rounded it */
	__u32 instance;    /* of a device */
	__u32 engine_type; /* of a group: NV2080_ENGINE_TYPE_* */
	__s32 fd;          /* the process's descriptor on which it was allocated, -1 unknown */
	__u8 reserved[60];
};

struct gpushare_event_control {
	__u32 client;
	__u32 object;
	__u32 command; /* RM control number */
	__u32 status;  /* RM status */
	__u64 value;   /* first 8 bytes of its parameters */
	__u64 repeats; /* refused ones: further refusals of this process that got no event */
	__u8 reserved[64];
};

struct gpushare_event_memory_refused {
	__u32 client;
	__u32 parent;
	__u32 class_id;
	__u32 instance;                 /* of the GPU */
	__u64 bytes;                    /* asked for */
	__u64 current_bytes, max_bytes; /* of the tenant on this GPU */
	__u64 repeats;                  /* further refusals of this process that got no event */
	__u8 reserved[48];
};

struct gpushare_event_settings {
	__u32 setting; /* enum gpushare_setting */
	__u32 reserved0;
	char tenant[GPUSHARE_TENANT_NAME_BYTES];
	__u8 reserved1[24];
};

/* An event has 128 bytes. It names its process by pid and start time, because pids are reused. */
struct gpushare_event {
	__u64 time_ns;     /* after the driver answered */
	__u64 start_ticks; /* field 22 of /proc/PID/stat */
	__u32 pid;         /* in the pid namespace of the file's opener */
	__u32 kind;        /* enum gpushare_event_kind; skip unknown ones */
	__u32 flags;       /* GPUSHARE_EVENT_* */
	__u32 reserved;
	union {
		struct gpushare_event_opened opened;
		struct gpushare_event_moved moved;
		struct gpushare_event_object object;
		struct gpushare_event_control control;
		struct gpushare_event_memory_refused memory_refused;
		struct gpushare_event_settings settings;
		__u8 bytes[96];
	};
};

#endif /* GPUSHARE_UAPI_H */
