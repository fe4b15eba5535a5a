// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/join.h"

#include <stdio.h>

#include "tools/slurm/agent.h"

/* Runs in the first of the names that the agent takes. `settings`: of a tenant that is made where
 * there is none; NULL: none is made. */
static enum gs_outcome run_in_one(const struct gs_step *step, const char *settings, int limit_ms,
				  const char **tenant, char *answer)
{
	enum gs_outcome outcome = GS_REFUSED;
	char request[384];

	for (int i = 0; i < step->count && outcome == GS_REFUSED; i++) {
		*tenant = step->names[i];
		snprintf(request, sizeof(request), "{\"op\":\"run\",\"tenant\":\"%s\"%s%s%s}",
			 *tenant, settings ? ",\"settings\":{" : "", settings ? settings : "",
			 settings ? "}" : "");
		outcome = gs_ask(step->admin->socket, request, limit_ms, answer);
	}
	return outcome;
}

enum gs_joined gs_join(const struct gs_step *step, int limit_ms, const char **tenant, char *why)
{
	struct gs_wish settled;
	char settings[192], answer[GS_ANSWER_SIZE];
	enum gs_outcome outcome = run_in_one(step, NULL, limit_ms, tenant, why);

	if (outcome != GS_REFUSED)
		return outcome == GS_DONE ? GS_JOINED : GS_NOT_JOINED;
	if (gs_settle(step->wish, step->admin, step->given, &settled, why))
		/* Another step of the job may have made the tenant meanwhile. */
		return run_in_one(step, NULL, limit_ms, tenant, answer) == GS_DONE ? GS_JOINED :
										     GS_TOO_MUCH;
	if (gs_settings_json(&settled, settings, sizeof(settings)) < 0) {
		gs_refuse(why, "its settings are too long");
		return GS_NOT_JOINED;
	}
	outcome = run_in_one(step, settings, limit_ms, tenant, why);
	return outcome == GS_DONE ? GS_JOINED_FIRST : GS_NOT_JOINED;
}
