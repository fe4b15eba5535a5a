/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The version of the module, and what differs between the kernels that it builds for. The names
 * GS_HAS_* come from Kbuild, which compiles the sources compat/try_*.c to find them out.
 */
#ifndef GPUSHARE_VERSION_H
#define GPUSHARE_VERSION_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/module.h>

#define GS_VERSION "0.1.0"

/* Marks a variable on the stack whose parts are set one by one before they are used. */
#define gs_uninitialized __attribute__((__uninitialized__))

/*
 * try_module_get() and module_put() of this module, without the function calls and their
 * tracepoints, because every call of the driver that is looked at does both.
 */
static __always_inline bool gs_module_try_get(void)
{
#ifdef CONFIG_MODULE_UNLOAD
	return module_is_live(THIS_MODULE) && atomic_inc_not_zero(&THIS_MODULE->refcnt);
#else
	return module_is_live(THIS_MODULE);
#endif
}

static __always_inline void gs_module_put(void)
{
#ifdef CONFIG_MODULE_UNLOAD
	atomic_dec(&THIS_MODULE->refcnt);
#endif
}

static inline void gs_vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
#ifdef GS_HAS_VM_FLAGS_CLEAR
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/*
 * Lets calls of the functions in the filter of @ops go to @entry first. The kernel leaves its marks
 * in @ops when it refuses, and would refuse the next time because of them.
 */
static inline int gs_ftrace_register_direct(struct ftrace_ops *ops, unsigned long entry)
{
	int err;

#ifdef GS_HAS_FTRACE_DIRECT_OPS
	err = register_ftrace_direct(ops, entry);
#else
	err = register_ftrace_direct_multi(ops, entry);
#endif
	if (!err)
		return 0;
	ops->func = NULL;
	ops->trampoline = 0;
	ops->flags &= FTRACE_OPS_FL_INITIALIZED;
	return err;
}

static inline int gs_ftrace_unregister_direct(struct ftrace_ops *ops, unsigned long entry)
{
#ifdef GS_HAS_FTRACE_DIRECT_OPS
	return unregister_ftrace_direct(ops, entry, false);
#else
	return unregister_ftrace_direct_multi(ops, entry);
#endif
}

/* The head of a function for the tracepoint sched_process_exit. */
#ifdef GS_HAS_EXIT_TRACE_GROUP_DEAD
#define GS_ON_EXIT(name) static void name(void *data, struct task_struct *task, bool is_group_dead)
#else
#define GS_ON_EXIT(name) static void name(void *data, struct task_struct *task)
#endif

/* How the kernel hands a kobject to a function that says whose its files are. */
#ifdef GS_HAS_CONST_OWNERSHIP
#define gs_const_kobject const
#else
#define gs_const_kobject
#endif

/* How the kernel takes the attribute that a function for a binary attribute gets. */
#ifdef GS_HAS_CONST_BIN_ATTRIBUTE
#define gs_const_bin const
#else
#define gs_const_bin
#endif

#endif /* GPUSHARE_VERSION_H */
