/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a job's comment into Slurm's records: what the agent says of its tenant, by Slurm's own
 * programs. Called in slurmstepd and in slurmd's processes for epilogs, on any thread.
 */
#ifndef GPUSHARE_SLURM_WRITE_H
#define GPUSHARE_SLURM_WRITE_H

#ifdef __cplusplus
extern "C" {
#endif

enum gs_keeper {
	GS_AT_SLURMCTLD, /* by scontrol, which takes jobs that run, and is ended after 2 s */
	GS_AT_SLURMDBD,  /* by sacctmgr, tried thrice: it may be about to hear of the job */
};

/* Asks the agent, for `limit_ms` at most, and starts to write. `job`: its name for Slurm's programs
 * (gs_job_name()). Returns what gs_start() does; -1 also if there is no such tenant, or no agent. */
int gs_write_comment(const char *socket_path, const char *tenant, const char *job,
		     enum gs_keeper keeper, int limit_ms);

#ifdef __cplusplus
}
#endif

#endif
