/* SPDX-License-Identifier: GPL-2.0 */
/* What nvidia has for nvidia_uvm, as in the driver's nv_uvm_interface.h and nv_uvm_types.h. */
#ifndef STANDIN_UVM_H
#define STANDIN_UVM_H

#include <linux/types.h>

/* UvmGpuMemoryInfo since 545; before that the member is_of_device stands where is_extended does. */
struct uvm_memory_info {
	u32 kind;
	u8 is_system, is_extended, is_of_device, pad0;
	u64 page_size;
	u8 is_contiguous, pad1[7];
	u64 address, size;
	u8 uuid[16];
};

u32 nvUvmInterfaceDupMemory(void *device, u32 client, u32 memory, u32 *handle,
			    struct uvm_memory_info *info);
u32 nvUvmInterfaceFreeDupedHandle(void *device, u32 handle);

#endif /* STANDIN_UVM_H */
