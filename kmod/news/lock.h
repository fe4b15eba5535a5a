/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The locks of the module's model: the tenants, the processes in them, the RM clients and objects
 * that the processes created, and the video memory that the objects hold.
 *
 *   client > object > charge > process > tenant
 *
 * Each type has a header of its own, which includes only those to its right. A lock may be taken
 * while locks above it in this table are held, and never the other way round:
 *
 *   gs_client.order       calls that make or free something of one client take turns, also while
 *                         the driver works
 *   gs_tree_lock          tenants come and go (sysfs/tenants.c)
 *   gs_lock               which tenants, processes, files and clients there are, which process is
 *                         in which tenant, settings and rules
 *   gs_client.lock        the objects of one client
 *   gs_marks_lock         which groups were scheduled before (filter/control.c)
 *   gs_process.lock       what one process holds, and of which tenant
 *   gs_processes_lock     the table of processes, for tracepoints
 *   gs_stream_lock        the ring of events
 *
 * A call that makes or frees memory, a channel or a context on a client of the caller's own takes
 * no lock that other processes take, except gs_stream_lock while an agent listens: it finds its
 * client under RCU, and what a tenant holds is counted by atomic numbers (members/counter.h).
 *
 * No function calls the driver, touches user memory or allocates while it holds gs_lock or a lock
 * below it, and none but the list of `procs` makes text; so these are held for lookups and
 * arithmetic, and long work lets go of them now and then. Functions that need a lock say so with
 * lockdep_assert_held(). The memory of an object is given back when the driver has said that the
 * object is gone, and never earlier.
 */
#ifndef GPUSHARE_LOCK_H
#define GPUSHARE_LOCK_H

#include <linux/mutex.h>
#include <linux/sched.h>

extern struct mutex gs_lock;

/**
 * gs_lock_rest() - Let others have a lock in the midst of long work.
 * @lock: gs_lock, or that of a client.
 *
 * What the caller has no reference of may be gone afterwards.
 */
static inline void gs_lock_rest(struct mutex *lock)
{
	mutex_unlock(lock);
	cond_resched();
	mutex_lock(lock);
}

#endif /* GPUSHARE_LOCK_H */
