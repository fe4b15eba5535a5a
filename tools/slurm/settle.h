/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job gets of a GPU: what it said, what the administrator allows, and what follows from its
 * shards. Pure functions without I/O; any thread may call. They refuse as those of wish.h do.
 */
#ifndef GPUSHARE_SLURM_SETTLE_H
#define GPUSHARE_SLURM_SETTLE_H

#include "tools/slurm/wish.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What Slurm gave the step on this node. Not all of it is Slurm's word: beside a whole GPU the
 * variable for shards is the user's. So more shards than the GPUs have are refused; up to that,
 * whoever owns whole GPUs has them anyway. */
struct gs_given {
	uint32_t shards; /* 0: none */
	uint32_t gpus;   /* that the step sees; 0: none */
};

/* Refuses what is more than `most` allows, as far as it says something: for where the shards are
 * not known yet, as on the machine where a job is submitted. */
int gs_check_most(const struct gs_wish *wish, const struct gs_wish *most, char *why);
/* Settles what the job gets: what it said, within what it may have, and for the rest what its
 * shards give. Refuses what is more. `result` says all but a cap and memory that are unlimited. */
int gs_settle(const struct gs_wish *wish, const struct gs_admin *admin, struct gs_given given,
	      struct gs_wish *result, char *why);

#define GS_TENANT_SIZE 64
/* Writes the tenant of a job into `name`, of GS_TENANT_SIZE bytes: "slurm-4711" below what the
 * administrator has said, "team/slurm-4711", where %u stands for `user` and %a for `account`. Returns
 * 0, or -1 if nothing is said, or the name is too long: then it is "slurm-4711" itself. */
int gs_tenant_name(const struct gs_admin *admin, const char *user, const char *account,
		   uint32_t job, char *name);
/* The job of such a name; 0 if it is none. */
uint32_t gs_job_of_tenant(const char *name);

/* Writes the settings as the members of a JSON object in the agent's words, without its braces:
 * "weight":"20","max":"30%". Returns the length, or -1 if `size` bytes are too few. */
int gs_settings_json(const struct gs_wish *wish, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
