/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What only the stand-in driver understands: the control by which a test's program says that it has
 * work for the GPU, and the ioctls of its nvidia_uvm. Everything else is as with the real driver
 * (intercept/nvrm/abi.h).
 */
#ifndef STANDIN_ABI_H
#define STANDIN_ABI_H

#include "intercept/nvrm/abi.h"

/*
 * This control, on a channel, begins or ends its work. A group runs while an unfrozen channel of it
 * has work.
 */
#define STANDIN_CTRL_SET_BUSY 0x5A5A0001u
struct standin_busy {
	gs_u32 is_busy;
};

/*
 * These ioctls, on /dev/nvidia-uvm, map memory and answer with RM's status and a number, and unmap
 * what has that number.
 */
#define STANDIN_UVM_MAP 0x5A01u
#define STANDIN_UVM_UNMAP 0x5A02u
struct standin_uvm_map {
	gs_u32 client, memory, number, status;
};

/*
 * The real driver's controls by which objects go into control files and out of them, and their
 * parameters (ctrl0000unix.h), which nothing else in gpushare's programs makes.
 */
#define CARRY_CTRL_EXPORT_ONE 0x3D05u
#define CARRY_CTRL_IMPORT_ONE 0x3D06u
#define CARRY_CTRL_EXPORT 0x3D0Bu
#define CARRY_CTRL_IMPORT 0x3D0Cu
#define CARRY_EXPORT_MAX 512
#define CARRY_IMPORT_MAX 128
struct carry_export_one {
	gs_u32 type, device, parent, object;
	gs_s32 fd;
	gs_u32 flags;
};
struct carry_import_one {
	gs_s32 fd;
	gs_u32 type, device, parent, object;
};
struct carry_export {
	gs_s32 fd;
	gs_u32 device;
	gs_u16 places;
	gs_u8 metadata[64], pad0[2];
	gs_u32 objects[CARRY_EXPORT_MAX];
	gs_u16 count, first;
};
struct carry_import {
	gs_s32 fd;
	gs_u32 parent, objects[CARRY_IMPORT_MAX];
	gs_u8 types[CARRY_IMPORT_MAX];
	gs_u16 count, first;
};

/*
 * The real driver's ioctl, on a GPU's file, by which memory goes into a DMA buffer (nv-ioctl.h, the
 * releases from 570 on), which is made unless its descriptor is given.
 */
#define DMA_BUF_ESC_EXPORT 217
#define DMA_BUF_EXPORT_MAX 128
struct dma_buf_export {
	gs_s32 fd;
	gs_u32 client, total, count, index, pad0;
	gs_u64 bytes;
	gs_u8 mapping, may_map, pad1[2];
	gs_u32 handles[DMA_BUF_EXPORT_MAX];
	gs_u32 pad2;
	gs_u64 offsets[DMA_BUF_EXPORT_MAX], sizes[DMA_BUF_EXPORT_MAX];
	gs_u32 status, pad3;
};

#endif /* STANDIN_ABI_H */
