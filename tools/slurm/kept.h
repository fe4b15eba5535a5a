/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one of the plugin's processes knows of a job, and a later one needs, in files beside the agent's
 * socket: nothing that a user can write to.
 */
#ifndef GPUSHARE_SLURM_KEPT_H
#define GPUSHARE_SLURM_KEPT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gs_kept {
	/* The job's account, from slurmd to its steps. Slurm tells them by the user's environment only. */
	GS_ACCOUNT,
	/* The job's name for slurmdbd, from a step to slurmd: what it used is still to be written there. */
	GS_UNACCOUNTED,
};

#define GS_KEPT_SIZE 64
/* Keeps a text. Returns 0, or -1 with errno. */
int gs_keep(const char *socket_path, enum gs_kept what, uint32_t job, const char *text);
/* Writes it into `text`, of GS_KEPT_SIZE bytes; "" if none is kept, or it could not be part of a
 * tenant's name. */
void gs_look_up(const char *socket_path, enum gs_kept what, uint32_t job, char *text);
void gs_forget(const char *socket_path, enum gs_kept what, uint32_t job);

#ifdef __cplusplus
}
#endif

#endif
