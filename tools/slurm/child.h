/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of Slurm's (scontrol) that is started from within one of Slurm's daemons, which may have
 * threads, waits for children of its own, and must not be held up: the program is nobody's child, has
 * nothing of the daemon's but where slurm.conf is, and the kernel ends it when its time is over.
 */
#ifndef GPUSHARE_SLURM_CHILD_H
#define GPUSHARE_SLURM_CHILD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the path of Slurm's program `name` into `path`: it lies in bin/ where that one lies in sbin/
 * which calls. Returns 0, or -1 if that cannot be said. */
int gs_slurm_program(const char *name, char *path, size_t size);

/* Starts a program, `words[0]` by its path, with the arguments that follow up to a NULL, which ends
 * after `limit_s` seconds at the latest. Returns a descriptor for gs_await_end(), or -1 with errno.
 * Whoever does not care how it ends closes that. */
int gs_start(const char *const words[], unsigned int limit_s);
/* Waits until it has ended, for `limit_ms` at most, and closes the descriptor. Returns 0 if its exit
 * status is 0; otherwise -1, with why in `why`, of `size` bytes: the first line of its complaints, if
 * it has made any. */
int gs_await_end(int fd, int limit_ms, char *why, size_t size);

#ifdef __cplusplus
}
#endif

#endif
