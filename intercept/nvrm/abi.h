/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the interface of NVIDIA's resource manager (RM) that gpushare uses, in our own
 * declarations after the driver's public headers (open-gpu-kernel-modules 580; the header that
 * defines each item is named beside it). Plain C with fixed-width members and explicit padding, so
 * that the eBPF probe, C++ and tests share it. tests/intercept/nvrm/abi/abi_test.cc checks sizes
 * and offsets.
 *
 * The layouts are the same in the releases 535 to 595, except where a comment says otherwise. A
 * driver that expects another size of a control answers it with status 0x1F
 * (NV_ERR_INVALID_ARGUMENT) and never misreads it.
 */
#ifndef GPUSHARE_NVRM_ABI_H
#define GPUSHARE_NVRM_ABI_H

#if defined(__bpf__) || defined(__KERNEL__)
/* The file that includes this one has included linux/types.h before. */
typedef __u8 gs_u8;
typedef __u16 gs_u16;
typedef __u32 gs_u32;
typedef __u64 gs_u64;
typedef __s32 gs_s32;
#else
#include <stdint.h>
typedef uint8_t gs_u8;
typedef uint16_t gs_u16;
typedef uint32_t gs_u32;
typedef uint64_t gs_u64;
typedef int32_t gs_s32;
#endif

/* --- ioctl numbers (nv-ioctl-numbers.h, nv_escape.h) ---------------------------------------- */
#define GS_NV_MAJOR 195 /* /dev/nvidiactl (minor 255), /dev/nvidiaN (minor N) */
#define GS_NV_CTL_MINOR 255
#define GS_NV_IOCTL_TYPE 'F'
#define GS_NV_ESC_RM_ALLOC_MEMORY 0x27
#define GS_NV_ESC_RM_ALLOC_OBJECT 0x28
#define GS_NV_ESC_RM_FREE 0x29
#define GS_NV_ESC_RM_CONTROL 0x2A
#define GS_NV_ESC_RM_ALLOC 0x2B
#define GS_NV_ESC_RM_DUP_OBJECT 0x34
#define GS_NV_ESC_RM_VID_HEAP_CONTROL 0x4A
#define GS_NV_ESC_RM_MAP_MEMORY 0x4E
#define GS_NV_ESC_RM_UNMAP_MEMORY 0x4F
#define GS_NV_ESC_CARD_INFO 200
#define GS_NV_ESC_REGISTER_FD 201
#define GS_NV_ESC_CHECK_VERSION_STR 210
#define GS_NV_ESC_IOCTL_XFER_CMD 211

/* --- classes (class/cl*.h) ------------------------------------------------------------------ */
#define GS_CLASS_ROOT 0x00u
#define GS_CLASS_ROOT_NON_PRIV 0x01u
#define GS_CLASS_ROOT_CLIENT 0x41u
#define GS_CLASS_MEMORY_SYSTEM 0x3Eu
#define GS_CLASS_MEMORY_LOCAL_USER 0x40u /* video memory */
#define GS_CLASS_DEVICE 0x80u
#define GS_CLASS_SUBDEVICE 0x2080u
#define GS_CLASS_EVENT_BUFFER 0x90CDu
#define GS_CLASS_MEMORY_DEVICELESS 0x90CEu
#define GS_CLASS_CHANNEL_GROUP 0xA06Cu
#define GS_CHANNEL_CLASS_LOW_BYTE 0x6Fu /* the GPFIFO channels of every generation end in it */

/* --- status codes (nvstatuscodes.h) --------------------------------------------------------- */
#define GS_NV_OK 0x00u
#define GS_NV_ERR_INSUFFICIENT_PERMISSIONS 0x1Bu
#define GS_NV_ERR_INVALID_ARGUMENT 0x1Fu
#define GS_NV_ERR_INVALID_CHANNEL 0x21u
#define GS_NV_ERR_INVALID_CLIENT 0x23u
#define GS_NV_ERR_INVALID_DEVICE 0x26u
#define GS_NV_ERR_INVALID_OBJECT_HANDLE 0x33u
#define GS_NV_ERR_INVALID_OBJECT_OLD 0x35u
#define GS_NV_ERR_INVALID_STATE 0x40u
#define GS_NV_ERR_NO_MEMORY 0x51u
#define GS_NV_ERR_NOT_SUPPORTED 0x56u
#define GS_NV_ERR_OBJECT_NOT_FOUND 0x57u

/* --- ioctl arguments (nvos.h) --------------------------------------------------------------- */
struct gs_nvos00 { /* RM_FREE */
  gs_u32 h_root, h_parent, h_object, status;
};

struct gs_nvos21 { /* RM_ALLOC, older callers */
  gs_u32 h_root, h_parent, h_new, h_class;
  gs_u64 p_params;
  gs_u32 params_size, status;
};

struct gs_nvos64 { /* RM_ALLOC */
  gs_u32 h_root, h_parent, h_new, h_class;
  gs_u64 p_params;
  gs_u64 p_rights;
  gs_u32 params_size, flags, status, pad;
};

struct gs_nvos54 { /* RM_CONTROL */
  gs_u32 h_client, h_object, cmd, flags;
  gs_u64 p_params;
  gs_u32 params_size, status;
};

struct gs_nvos55 { /* RM_DUP_OBJECT */
  gs_u32 h_client, h_parent, h_object, h_client_src, h_object_src, flags, status;
};

struct gs_nvos05 { /* RM_ALLOC_OBJECT: an allocation without parameters */
  gs_u32 h_root, h_parent, h_new, h_class, status;
};

struct gs_nvos32_head { /* the part of VID_HEAP_CONTROL that ALLOC_SIZE* and FREE use */
  gs_u32 h_root, h_parent, function, h_va_space;
  gs_u16 ivc_heap, pad0;
  gs_u32 status;
  gs_u64 total, free;
  gs_u32 owner, h_memory;
  gs_u32 type, flags, attr; /* FREE ends with `type`, which is its flags */
  gs_u32 format, compr_covg, zcull_covg, partition_stride, width;
  gs_u64 height_or_range_size; /* ALLOC_SIZE: u32 height; ALLOC_SIZE_RANGE: the size */
  gs_u64 size;                 /* ALLOC_SIZE only */
};
#define GS_HEAP_ALLOC_SIZE 2u
#define GS_HEAP_FREE 3u
#define GS_HEAP_ALLOC_SIZE_RANGE 14u
#define GS_HEAP_FLAGS_VIRTUAL 0x00080000u       /* reserves address space only, no memory */
#define GS_MEMORY_ATTR_LOCATION_MASK (3u << 25) /* 0 means video memory */

struct gs_nvos02_fd { /* RM_ALLOC_MEMORY */
  gs_u32 h_root, h_parent, h_new, h_class, flags, pad0;
  gs_u64 p_memory;
  gs_u64 limit; /* size - 1 */
  gs_u32 status, pad1;
  gs_s32 fd;
  gs_u32 pad2;
};

struct gs_nvos33_fd { /* RM_MAP_MEMORY */
  gs_u32 h_client, h_device, h_memory, pad0;
  gs_u64 offset, length, p_linear;
  gs_u32 status, flags;
  gs_s32 fd;
  gs_u32 pad1;
};

struct gs_nv_xfer { /* IOCTL_XFER_CMD: another command and the address of its argument */
  gs_u32 cmd, size;
  gs_u64 ptr;
};

struct gs_nv_version { /* CHECK_VERSION_STR; cmd '2' asks without the strict compare */
  gs_u32 cmd, reply;
  char text[64];
};

/* --- allocation parameters ------------------------------------------------------------------ */
struct gs_device_params { /* NV0080_ALLOC_PARAMETERS, class/cl0080.h */
  gs_u32 device_id, h_client_share, h_target_client, h_target_device, flags, pad0;
  gs_u64 va_space_size, va_start, va_limit;
  gs_u32 va_mode, pad1;
};

struct gs_subdevice_params { /* NV2080_ALLOC_PARAMETERS, class/cl2080.h */
  gs_u32 subdevice_id;
};

struct gs_group_params { /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, nvos.h */
  gs_u32 h_error, h_ecc_error, h_va_space, engine_type;
  gs_u8 is_vgpu_plugin, pad[3];
};

struct gs_memory_params { /* NV_MEMORY_ALLOCATION_PARAMS, nvos.h */
  gs_u32 owner, type, flags, width, height;
  gs_s32 pitch;
  gs_u32 attr, attr2, format, compr_covg, zcull_covg, pad0;
  gs_u64 range_lo, range_hi, size, alignment, offset, limit, address;
  gs_u32 ctag_offset, h_va_space, internal_flags, tag;
  gs_s32 numa_node;
  gs_u32 pad1;
};
#define GS_MEMORY_ATTR_LOCATION_PCI (1u << 25)     /* NVOS32_ATTR_LOCATION 26:25 */
#define GS_MEMORY_ATTR_COHERENCY_CACHED (1u << 29) /* NVOS32_ATTR_COHERENCY 31:29 */
#define GS_MEMORY_ATTR2_USER_READ_ONLY (1u << 22)  /* NVOS32_ATTR2_PROTECTION_USER 22:22 */

/* Engine types (NV2080_ENGINE_TYPE_*, class/cl2080_notification.h) */
#define GS_ENGINE_TYPE_GR0 1u
#define GS_ENGINE_TYPE_GR7 8u
#define GS_ENGINE_TYPE_COPY0 9u
#define GS_ENGINE_TYPE_COPY9 18u
#define GS_ENGINE_TYPE_COPY10 52u
#define GS_ENGINE_TYPE_COPY19 61u

/* --- controls: scheduling ------------------------------------------------------------------- */
#define GS_CTRL_DISABLE_CHANNELS 0x2080110Bu /* ctrl2080fifo.h */
#define GS_DISABLE_CHANNELS_MAX 64
struct gs_disable_channels {
  gs_u8 disable, pad0[3];
  gs_u32 count;
  gs_u8 only_disable_scheduling, rewind_gp_put, pad1[6];
  gs_u64 p_preempt_event;
  gs_u32 clients[GS_DISABLE_CHANNELS_MAX];
  gs_u32 channels[GS_DISABLE_CHANNELS_MAX];
};

#define GS_CTRL_GROUP_SCHEDULE 0xA06C0101u /* ctrla06c.h */
#define GS_CTRL_SET_TIMESLICE 0xA06C0103u
#define GS_CTRL_GET_TIMESLICE 0xA06C0104u
#define GS_CTRL_GROUP_PREEMPT 0xA06C0105u
#define GS_CTRL_GROUP_INFO 0xA06C0106u
#define GS_CTRL_SET_INTERLEAVE 0xA06C0107u
#define GS_CTRL_MAKE_REALTIME 0xA06C0110u
#define GS_CTRL_CHANNEL_SCHEDULE 0xA06F0103u /* ctrla06fgpfifo.h */
#define GS_CTRL_CHANNEL_SET_INTERLEAVE 0xA06F0109u
#define GS_CTRL_CHANNEL_RESTART_RUNLIST 0xA06F0111u
#define GS_CTRL_CHANNEL_STOP 0xA06F0112u
#define GS_CTRL_CHANNEL_PREEMPTIVE_REMOVAL 0x2080110Au /* ctrl2080fifo.h */
#define GS_CTRL_RUNLIST_SET_SCHED_POLICY 0x20801115u
#define GS_CTRL_OBJSCHED_SET_STATE 0x20801121u
struct gs_timeslice {
  gs_u64 us;
};
struct gs_group_info {
  gs_u32 number; /* the hardware's number of the channel group */
};

/* --- controls: what is there ---------------------------------------------------------------- */
#define GS_MAX_GPUS 32
#define GS_INVALID_GPU_ID 0xFFFFFFFFu
#define GS_CTRL_GPU_GET_ID_INFO_V2 0x205u /* ctrl0000gpu.h */
struct gs_gpu_id_info {
  gs_u32 gpu_id, flags, device_instance, subdevice_instance, sli_status, board_id, gpu_instance;
  gs_s32 numa_id;
};
#define GS_CTRL_GPU_GET_PROBED_IDS 0x214u
struct gs_probed_ids {
  gs_u32 ids[GS_MAX_GPUS], excluded[GS_MAX_GPUS], flags[GS_MAX_GPUS];
};
#define GS_CTRL_GPU_ATTACH_IDS 0x215u
struct gs_attach_ids {
  gs_u32 ids[GS_MAX_GPUS], failed_id;
};
#define GS_CTRL_GPU_GET_PCI_INFO 0x21Bu
struct gs_pci_info {
  gs_u32 gpu_id, domain;
  gs_u16 bus, slot;
};
#define GS_CTRL_CLIENT_GET_HANDLE_INFO 0xD02u /* ctrl0000client.h */
#define GS_HANDLE_INFO_PARENT 1u
#define GS_HANDLE_INFO_CLASS 2u
struct gs_handle_info {
  gs_u32 h_object, index;
  gs_u64 result;
};
/* On our own client, of any object of any client, without any privilege: what we may do with it.
 * Tells whether it is there. */
#define GS_CTRL_CLIENT_GET_ACCESS_RIGHTS 0xD03u
struct gs_access_rights {
  gs_u32 h_object, h_client, rights;
};
#define GS_CTRL_GPU_GET_NAME_STRING 0x20800110u /* ctrl2080gpu.h */
struct gs_name_string {
  gs_u32 flags;
  gs_u8 ascii[128]; /* the union's UTF-16 form is 64 units */
};
struct gs_name_string_595 { /* 595 and later have no UTF-16 form */
  gs_u32 flags;
  gs_u8 ascii[64];
};
#define GS_CTRL_GPU_GET_GID_INFO 0x2080014Au
#define GS_GID_FLAGS_BINARY 2u
struct gs_gid_info {
  gs_u32 index, flags, length;
  gs_u8 data[256];
};
#define GS_CTRL_GPU_GET_ID 0x20800142u
struct gs_gpu_id {
  gs_u32 gpu_id;
};
#define GS_CTRL_FB_GET_INFO 0x20801301u /* ctrl2080fb.h */
#define GS_FB_INFO_TOTAL_RAM_SIZE 8u    /* KiB */
struct gs_info_entry {
  gs_u32 index, data;
};
struct gs_fb_info {
  gs_u32 count, pad;
  gs_u64 p_list;
};
#define GS_CTRL_GR_SM_MAPPINGS 0x2080120Fu /* ctrl2080gr.h */
struct gs_sm_mappings {
  struct {
    gs_u32 gpc, tpc;
  } sm[240];
  gs_u32 count, pad;
  gs_u32 route_flags, pad1;
  gs_u64 route;
};
struct gs_sm_mappings_555 { /* up to 555, which know no GPU of more SMs */
  struct {
    gs_u32 gpc, tpc;
  } sm[144];
  gs_u32 count, pad;
  gs_u32 route_flags, pad1;
  gs_u64 route;
};
#define GS_CTRL_TIMER_GPU_CPU_CORRELATION 0x20800406u /* ctrl2080tmr.h */
#define GS_CPU_CLOCK_OSTIME 1u
struct gs_time_sample {
  gs_u64 cpu, gpu;
};
struct gs_time_correlation {
  gs_u8 cpu_clock, samples, pad[6];
  struct gs_time_sample sample[16];
};
#define GS_CTRL_TIMER_GET_TIME 0x20800403u
struct gs_gpu_time {
  gs_u64 ns;
};

/* --- the context-switch log (class/cl90cd.h, cl90cdfecs.h, ctrl90cd.h, ctrl2080gr.h) -------- */
struct gs_event_buffer_params {
  gs_u64 p_header, p_records;
  gs_u32 record_size, record_count;
  gs_u64 p_vardata;
  gs_u32 vardata_size, records_free_threshold;
  gs_u64 notification;
  gs_u32 vardata_free_threshold, h_subdevice, flags, h_header, h_records, h_vardata;
};
struct gs_event_buffer_header {
  gs_u32 get, put;
  gs_u64 count; /* RM does not update it in keep-newest mode */
  gs_u64 dropped, vardata_dropped;
};
struct gs_switch_record {
  gs_u16 type, subtype;
  gs_u32 vardata;
  gs_u8 tag, vmid;
  gs_u16 seqno;
  gs_u32 context_id;
  gs_u32 pid; /* 0 means hidden, 0xFFFFFFFF the kernel */
  gs_u16 reserved;
  gs_u8 gpu_instance, compute_instance;
  gs_u64 timestamp; /* ns, GPU's PTIMER */
};
#define GS_SWITCH_START 6u
#define GS_SWITCH_END 7u
#define GS_CTRL_GR_BIND_SWITCH_LOG 0x20801238u /* GR_FECS_BIND_EVTBUF_FOR_UID_V2 */
#define GS_SWITCH_LOD_SIMPLE 1u
struct gs_bind_switch_log {
  gs_u32 h_buffer, record_size, level, filter;
  gs_u8 all_users, pad[3];
  gs_u32 reason;
};
#define GS_CTRL_EVENTS_ENABLE 0x90CD0101u
#define GS_EVENTS_KEEP_NEWEST 2u
struct gs_events_enable {
  gs_u8 enable, pad[3];
  gs_u32 flags;
};
#define GS_CTRL_EVENTS_FLUSH 0x90CD0104u

#endif /* GPUSHARE_NVRM_ABI_H */
