/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a step comes into its job's tenant. The job's first step on a node makes the tenant, and its
 * limits are checked then. Those of later steps are not: they may have fewer shards than the job,
 * and find in their environment what the job said. Called in slurmstepd, which joins with all that
 * it will start.
 */
#ifndef GPUSHARE_SLURM_JOIN_H
#define GPUSHARE_SLURM_JOIN_H

#include "tools/slurm/settle.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gs_step {
	const struct gs_admin *admin;
	const struct gs_wish *wish;
	struct gs_given given;
	/* The names that the job's tenant may have, the wished one first, and their number. */
	char names[2][GS_TENANT_SIZE];
	int count;
};

enum gs_joined {
	GS_JOINED,
	GS_JOINED_FIRST, /* and has made the tenant */
	GS_TOO_MUCH,     /* there is no tenant, and the step may not have what it says */
	GS_NOT_JOINED,   /* no agent answers, or it refuses */
};

/* The calling process joins. Asks the agent twice for each name at most, and waits for it for
 * `limit_ms` at most each time. On success `tenant` is one of the names; otherwise `why`, of
 * GS_ANSWER_SIZE bytes, says what is wrong. */
enum gs_joined gs_join(const struct gs_step *step, int limit_ms, const char **tenant, char *why);

#ifdef __cplusplus
}
#endif

#endif
