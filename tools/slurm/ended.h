/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that ended while no agent ran: their tenants outlive the agent, so they are removed when one
 * is there again. The list is a file beside the agent's socket, locked while it is read or written.
 */
#ifndef GPUSHARE_SLURM_ENDED_H
#define GPUSHARE_SLURM_ENDED_H

#ifdef __cplusplus
extern "C" {
#endif

/* Notes the job's tenant, a name of at most 63 characters. Returns 0, or -1 with errno. While another
 * process has the list, both wait for 100 ms at most. */
int gs_note_ended(const char *socket_path, const char *tenant);
/* Calls `remove` with each tenant of the list, the first 256, and takes them from it; what it refuses
 * by returning -1 stays there, with all that follow. */
void gs_take_ended(const char *socket_path, int (*remove)(const char *tenant));

#ifdef __cplusplus
}
#endif

#endif
