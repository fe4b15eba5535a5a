/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of the ioctl interface of NVIDIA's resource manager (RM) that the filter reads. It is
 * declared from the facts in the driver's public headers (open-gpu-kernel-modules 535 to 595:
 * nv_escape.h, nvos.h, class/cl*.h, ctrl/ctrl*.h). Members have fixed widths and padding is
 * explicit, because 32-bit callers pass the same bytes. tests/kmod compares every number and offset
 * with intercept/nvrm/abi.h.
 */
#ifndef GPUSHARE_RM_ABI_H
#define GPUSHARE_RM_ABI_H

#include <linux/types.h>

#define RM_MAJOR 195

/*
 * The numbers of ioctls. The driver looks at number and size only, never at the type byte ('F').
 */
#define RM_ESC_ALLOC_MEMORY 0x27
#define RM_ESC_ALLOC_OBJECT 0x28
#define RM_ESC_FREE 0x29
#define RM_ESC_CONTROL 0x2A
#define RM_ESC_ALLOC 0x2B
#define RM_ESC_DUP_OBJECT 0x34
#define RM_ESC_VID_HEAP_CONTROL 0x4A
#define RM_ESC_REGISTER_FD 201    /* lets a file speak for the clients of a control file */
#define RM_ESC_XFER 211           /* wraps another command, whose argument it points to */
#define RM_ESC_EXPORT_DMA_BUF 217 /* puts memory into a DMA buffer; on a GPU's file */

#define RM_OK 0x00u
#define RM_ERR_INSUFFICIENT_PERMISSIONS 0x1Bu
#define RM_ERR_NO_MEMORY 0x51u

/* The classes of objects. */
#define RM_CLASS_ROOT 0x00u
#define RM_CLASS_ROOT_NON_PRIV 0x01u
#define RM_CLASS_ROOT_CLIENT 0x41u
#define RM_CLASS_MEMORY_SYSTEM 0x3Eu
#define RM_CLASS_MEMORY_LOCAL_USER 0x40u /* video memory */
#define RM_CLASS_DEVICE 0x80u
#define RM_CLASS_SUBDEVICE 0x2080u
#define RM_CLASS_GROUP 0xA06Cu
#define RM_CHANNEL_CLASS_LOW_BYTE 0x6Fu /* of every generation of GPFIFO channels */

/* The scheduling controls. refusals.h says what is done about each. */
#define RM_CTRL_CHANNEL_PREEMPTIVE_REMOVAL 0x2080110Au
#define RM_CTRL_DISABLE_CHANNELS 0x2080110Bu
#define RM_CTRL_CONFIG_CTXSW_TIMEOUT 0x20801110u
#define RM_CTRL_RUNLIST_SET_SCHED_POLICY 0x20801115u
#define RM_CTRL_DISABLE_USERMODE_CHANNELS 0x20801117u
#define RM_CTRL_DISABLE_CHANNELS_FOR_KEY_ROTATION 0x2080111Au
#define RM_CTRL_DISABLE_CHANNELS_FOR_KEY_ROTATION_V2 0x2080111Bu
#define RM_CTRL_OBJSCHED_SET_STATE 0x20801121u
#define RM_CTRL_SET_PREEMPTION_MODE 0x20801210u
#define RM_CTRL_SET_CHANNEL_PROPERTIES 0x0080170Fu
#define RM_CTRL_STOP_RUNLIST 0x00801711u
#define RM_CTRL_START_RUNLIST 0x00801712u
#define RM_CTRL_GROUP_SCHEDULE 0xA06C0101u
#define RM_CTRL_SET_TIMESLICE 0xA06C0103u
#define RM_CTRL_GROUP_PREEMPT 0xA06C0105u
#define RM_CTRL_SET_INTERLEAVE 0xA06C0107u
#define RM_CTRL_MAKE_REALTIME 0xA06C0110u
#define RM_CTRL_CHANNEL_SCHEDULE 0xA06F0103u
#define RM_CTRL_CHANNEL_SET_INTERLEAVE 0xA06F0109u
#define RM_CTRL_CHANNEL_RESTART_RUNLIST 0xA06F0111u
#define RM_CTRL_CHANNEL_STOP 0xA06F0112u
#define RM_CTRL_SET_CHANNEL_HW_STATE 0xB06F0110u

/* The controls of a client by which objects go into a file, and out of it. */
#define RM_CTRL_EXPORT_OBJECT 0x3D05u
#define RM_CTRL_IMPORT_OBJECT 0x3D06u
#define RM_CTRL_EXPORT_OBJECTS 0x3D0Bu
#define RM_CTRL_IMPORT_OBJECTS 0x3D0Cu

/* The arguments of ioctls. */
struct rm_nvos00 { /* RM_ESC_FREE */
	__u32 h_root, h_parent, h_object, status;
};

struct rm_nvos02_fd { /* RM_ESC_ALLOC_MEMORY */
	__u32 h_root, h_parent, h_new, h_class, flags, pad0;
	__u64 p_memory;
	__u64 limit; /* size - 1 */
	__u32 status, pad1;
	__s32 fd;
	__u32 pad2;
};

struct rm_nvos05 { /* RM_ESC_ALLOC_OBJECT */
	__u32 h_root, h_parent, h_new, h_class, status;
};

struct rm_nvos21 { /* RM_ESC_ALLOC of older callers */
	__u32 h_root, h_parent, h_new, h_class;
	__u64 p_params;
	__u32 params_size, status;
};

struct rm_nvos64 { /* RM_ESC_ALLOC */
	__u32 h_root, h_parent, h_new, h_class;
	__u64 p_params;
	__u64 p_rights;
	__u32 params_size, flags, status, pad;
};

#define RM_ALLOC_FLAGS_SERIALIZED 1u /* p_params is in another form */

struct rm_nvos54 { /* RM_ESC_CONTROL */
	__u32 h_client, h_object, cmd, flags;
	__u64 p_params;
	__u32 params_size, status;
};

#define RM_CONTROL_FLAGS_SERIALIZED 4u

struct rm_nvos55 { /* RM_ESC_DUP_OBJECT */
	__u32 h_client, h_parent, h_object, h_client_src, h_object_src, flags, status;
};

/* RM_ESC_VID_HEAP_CONTROL, as far as it is read. The whole has 184 bytes and may grow. */
struct rm_nvos32_head {
	__u32 h_root, h_parent, function, h_va_space;
	__u16 ivc_heap, pad0;
	__u32 status;
	__u64 total, free;
	__u32 owner, h_memory;
	__u32 type, flags, attr; /* RM_HEAP_FREE ends with `type`. */
	__u32 format, compr_covg, zcull_covg, partition_stride, width;
	__u64 height_or_range_size; /* ALLOC_SIZE: u32 height; ALLOC_SIZE_RANGE: the size */
	__u64 size; /* ALLOC_SIZE; ALLOC_TILED: answer; in ALLOC_SIZE_RANGE something else */
};

/* The same for RM_HEAP_ALLOC_TILED, whose members stand elsewhere. The driver computes the size. */
struct rm_nvos32_tiled {
	__u32 h_root, h_parent, function, h_va_space;
	__u16 ivc_heap, pad0;
	__u32 status;
	__u64 total, free;
	__u32 owner, h_memory;
	__u32 type, flags, height;
	__s32 pitch;
	__u32 attr;
};

#define RM_HEAP_ALLOC_SIZE 2u
#define RM_HEAP_FREE 3u
#define RM_HEAP_ALLOC_TILED 6u
#define RM_HEAP_ALLOC_SIZE_RANGE 14u

struct rm_register_fd { /* RM_ESC_REGISTER_FD; it has no status */
	__s32 fd;
};

/*
 * RM_ESC_EXPORT_DMA_BUF, as far as it is read. Then come the handles, offsets and sizes of the
 * objects, for which there are RM_EXPORT_DMA_BUF_MAX places, and the status, in the last eight
 * bytes. What stands before the handles grew in 570.
 */
#define RM_EXPORT_DMA_BUF_MAX 128
#define RM_EXPORT_DMA_BUF_BYTES_MIN 2600
struct rm_export_dma_buf_head {
	__s32 fd;
	__u32 h_client, total, count;
};

struct rm_xfer {
	__u32 cmd, size;
	__u64 ptr;
};

/* The parameters of allocations, up to the last member that is read. */
struct rm_device_params {
	__u32 device_id;
};

struct rm_group_params {
	__u32 h_error, h_ecc_error, h_va_space, engine_type;
};

struct rm_memory_params {
	__u32 owner, type, flags, width, height;
	__s32 pitch;
	__u32 attr, attr2, format, compr_covg, zcull_covg, pad0;
	__u64 range_lo, range_hi, size;
};

/* The parameters of RM_CTRL_SET_PREEMPTION_MODE. */
struct rm_preemption_params {
	__u32 flags, h_channel, graphics_mode, compute_mode;
};

#define RM_PREEMPTION_FLAGS_COMPUTE 1u /* compute_mode is set, otherwise it stays */
#define RM_PREEMPTION_COMPUTE_WAIT_FOR_IDLE 0u

/* The engine of a group: those of the GPU's graphics and compute, of which a context has one. */
#define RM_ENGINE_GR0 1u
#define RM_ENGINE_GR7 8u

#define RM_MEMORY_FLAGS_VIRTUAL 0x00080000u     /* address space only */
#define RM_MEMORY_ATTR_LOCATION_MASK (3u << 25) /* 0: video memory */
#define RM_MEMORY_ATTR_PAGE_SIZE_SHIFT 23       /* 24:23 */
#define RM_MEMORY_ATTR_PAGE_SIZE_4K 1u
#define RM_MEMORY_ATTR_PAGE_SIZE_BIG 2u
#define RM_MEMORY_ATTR_PAGE_SIZE_HUGE 3u

/* The parameters of controls that export and import objects (ctrl0000unix.h). */
struct rm_export_object {
	__u32 type, h_device, h_parent, h_object;
	__s32 fd;
	__u32 flags;
};

struct rm_import_object {
	__s32 fd;
	__u32 type, h_device, h_parent, h_object;
};

#define RM_EXPORT_OBJECTS_MAX 512
struct rm_export_objects {
	__s32 fd;
	__u32 h_device;
	__u16 places; /* of the file, if it has none yet */
	__u8 metadata[64], pad0[2];
	__u32 objects[RM_EXPORT_OBJECTS_MAX];
	__u16 count, first;
};

#define RM_IMPORT_OBJECTS_MAX 128
struct rm_import_objects {
	__s32 fd;
	__u32 h_parent;
	__u32 objects[RM_IMPORT_OBJECTS_MAX];
	__u8 types[RM_IMPORT_OBJECTS_MAX];
	__u16 count, first;
};

/*
 * What RM says of memory that it gives nvidia_uvm a name for: the beginning of UvmGpuMemoryInfo
 * (nv_uvm_types.h). One of the bytes `of_device` is set for memory that belongs to a GPU and not
 * to the fabric between GPUs: the first one up to 535, the second one since.
 */
struct rm_uvm_memory {
	__u32 kind;
	__u8 is_system;
	__u8 of_device[2];
	__u8 pad0;
	__u64 page_size;
	__u8 is_contiguous;
	__u8 pad1[7];
	__u64 address;
	__u64 size;
};

#endif /* GPUSHARE_RM_ABI_H */
