/* SPDX-License-Identifier: GPL-2.0 */
/* The module's version, and what differs between the kernels that it builds for. */
#ifndef GPUSHARE_VERSION_H
#define GPUSHARE_VERSION_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/version.h>
#ifdef CONFIG_X86_KERNEL_IBT
#include <asm/ibt.h>
#endif

#define GS_VERSION "0.1.0"

static inline void gs_vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/* Where a diverted call goes on. */
static __always_inline void gs_ftrace_divert(struct ftrace_regs *regs, unsigned long ip)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	ftrace_regs_set_instruction_pointer(regs, ip);
#else
	ftrace_instruction_pointer_set(regs, ip);
#endif
}

#ifdef CONFIG_X86_KERNEL_IBT
static inline bool gs_is_endbr(const u32 *instruction)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	return __is_endbr(*instruction);
#else
	return is_endbr(*instruction);
#endif
}
#endif

#endif /* GPUSHARE_VERSION_H */
