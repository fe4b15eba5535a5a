/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mutex that protects the module's model: the tenants, the processes in them, the RM clients
 * and objects that the processes created, and the video memory that the objects hold.
 *
 *   client > object > charge > process > tenant
 *
 * Each type has a header of its own, which includes only those to its right. No function calls the
 * driver or touches user memory while it holds gs_lock, so the lock is held for lookups and
 * arithmetic only. Functions that need it say so with lockdep_assert_held(). Reference counts are
 * plain integers under it. The memory of an object is given back when the driver has said that the
 * object is gone, and never earlier.
 */
#ifndef GPUSHARE_LOCK_H
#define GPUSHARE_LOCK_H

#include <linux/mutex.h>

extern struct mutex gs_lock;

#endif /* GPUSHARE_LOCK_H */
