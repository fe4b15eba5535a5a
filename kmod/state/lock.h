/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mutex that protects the module's model: the tenants, the processes in them, the RM clients
 * and objects that the processes created, and the video memory that the objects hold.
 *
 *   client > object > charge > process > tenant
 *
 * Each type has a header of its own, which includes only those to its right. No function calls the
 * driver, touches user memory, allocates or makes text while it holds gs_lock, so the lock is held
 * for lookups and arithmetic only; long work lets go of it now and then (gs_lock_rest()).
 * Functions that need it say so with lockdep_assert_held(). Reference counts are plain integers
 * under it. The memory of an object is given back when the driver has said that the object is
 * gone, and never earlier.
 */
#ifndef GPUSHARE_LOCK_H
#define GPUSHARE_LOCK_H

#include <linux/mutex.h>
#include <linux/sched.h>

extern struct mutex gs_lock;

/**
 * gs_lock_rest() - Let others have gs_lock in the midst of long work.
 *
 * What the caller has no reference of may be gone afterwards.
 */
static inline void gs_lock_rest(void)
{
	mutex_unlock(&gs_lock);
	cond_resched();
	mutex_lock(&gs_lock);
}

#endif /* GPUSHARE_LOCK_H */
