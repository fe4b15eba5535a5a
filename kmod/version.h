/* SPDX-License-Identifier: GPL-2.0 */
/* The module's version, and what differs between the kernels that it builds for. */
#ifndef GPUSHARE_VERSION_H
#define GPUSHARE_VERSION_H

#include <linux/mm.h>
#include <linux/version.h>

#define GS_VERSION "0.1.0"

static inline void gs_vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

#endif /* GPUSHARE_VERSION_H */
