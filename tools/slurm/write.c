// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/slurm/agent.h"
#include "tools/slurm/child.h"
#include "tools/slurm/comment.h"

#define SCONTROL_S 2
#define SACCTMGR_S 60

int gs_write_comment(const char *socket_path, const char *tenant, const char *job,
		     enum gs_keeper keeper, int limit_ms)
{
	static const char again[] = "for s in 1 3 9; do sleep $s; timeout 10 \"$@\" && exit; done";
	const char *program = keeper == GS_AT_SLURMCTLD ? "scontrol" : "sacctmgr";
	char request[128], answer[GS_ANSWER_SIZE], path[320], which[80];
	char comment[GS_COMMENT_SIZE + 16] = "AdminComment=";
	const char *const update[] = { path, "update", which, comment, NULL };
	const char *const modify[] = { "/bin/sh", "-c",    again, "sh",  path,    "-i", "modify",
				       "job",     "where", which, "set", comment, NULL };

	snprintf(request, sizeof(request), "{\"op\":\"use\",\"tenant\":\"%s\"}", tenant);
	snprintf(which, sizeof(which), "JobId=%s", job);
	if (gs_slurm_program(program, path, sizeof(path)) ||
	    gs_ask(socket_path, request, limit_ms, answer) != GS_DONE)
		return -1;
	gs_comment(answer, getenv("SLURMD_NODENAME"), comment + strlen(comment));
	if (keeper == GS_AT_SLURMCTLD)
		return gs_start(update, SCONTROL_S);
	return gs_start(modify, SACCTMGR_S);
}
