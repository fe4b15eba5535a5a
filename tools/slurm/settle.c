// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/settle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void cap_text(uint32_t cap, char *text, size_t size)
{
	if (cap % 1000)
		snprintf(text, size, "%u.%03u%%", cap / 1000, cap % 1000);
	else
		snprintf(text, size, "%u%%", cap / 1000);
}

int gs_check_most(const struct gs_wish *wish, const struct gs_wish *most, char *why)
{
	char asked[24], allowed[24];

	if (wish->is_said[GS_WEIGHT] && most->is_said[GS_WEIGHT] && wish->weight > most->weight)
		return gs_refuse(why, "--gpu-weight=%u is more than this job may have: at most %u",
				 wish->weight, most->weight);
	if (wish->is_said[GS_CAP] && most->is_said[GS_CAP] && wish->cap > most->cap) {
		cap_text(wish->cap, asked, sizeof(asked));
		cap_text(most->cap, allowed, sizeof(allowed));
		return gs_refuse(why, "--gpu-cap=%s is more than this job may have: at most %s",
				 asked, allowed);
	}
	if (wish->is_said[GS_MEMORY] && most->is_said[GS_MEMORY] && wish->memory > most->memory)
		return gs_refuse(why,
				 "--gpu-mem=%" PRIu64
				 " is more than this job may have: at most %" PRIu64 " bytes",
				 wish->memory, most->memory);
	if (wish->is_said[GS_PRIORITY] && most->is_said[GS_PRIORITY] &&
	    wish->priority > most->priority)
		return gs_refuse(why,
				 "--gpu-priority=%s is more than this job may have: at most %s",
				 gs_priority_names[wish->priority],
				 gs_priority_names[most->priority]);
	return 0;
}

int gs_settle(const struct gs_wish *wish, const struct gs_admin *admin, struct gs_given given,
	      struct gs_wish *result, char *why)
{
	const uint64_t gpus = given.gpus ? given.gpus : 1;
	/* Who has whole GPUs has all of their shards. Who has none counts as one shard, as GPUs that
	 * Slurm did not give him may still be in his reach. */
	const uint64_t owned = given.gpus ? given.gpus * (uint64_t)admin->shards : 1;
	const uint64_t shards = given.shards ? given.shards : owned;
	uint64_t weight = (shards * admin->weight_per_shard + gpus / 2) / gpus;
	struct gs_wish most = admin->most;

	if (shards > admin->shards * gpus)
		return gs_refuse(why,
				 "%" PRIu64 " shards on %" PRIu64
				 " GPU(s) that have %u each: shards= "
				 "of plugstack.conf and gres.conf disagree",
				 shards, gpus, admin->shards);
	if (weight < 1)
		weight = 1;
	if (weight > GS_WEIGHT_MAX)
		return gs_refuse(why,
				 "%" PRIu64 " shards make a weight of %" PRIu64
				 ", at most 10000 is "
				 "allowed: weight_per_shard= of plugstack.conf is too high",
				 shards, weight);
	if (!most.is_said[GS_WEIGHT]) {
		most.is_said[GS_WEIGHT] = true;
		most.weight = (uint32_t)weight;
	}
	*result = (struct gs_wish){
		.is_said = { [GS_WEIGHT] = true, [GS_PRIORITY] = true },
		.weight = weight > most.weight ? most.weight : (uint32_t)weight,
		.priority = admin->priority,
	};
	if (most.is_said[GS_CAP]) {
		result->is_said[GS_CAP] = true;
		result->cap = most.cap;
	}
	if (admin->memory_per_shard != GS_NO_MEMORY) {
		const uint64_t memory = shards * admin->memory_per_shard / gpus;

		if (!most.is_said[GS_MEMORY])
			most.memory = memory;
		most.is_said[GS_MEMORY] = true;
		result->memory = memory < most.memory ? memory : most.memory;
		result->is_said[GS_MEMORY] = true;
	} else if (most.is_said[GS_MEMORY]) {
		result->is_said[GS_MEMORY] = true;
		result->memory = most.memory;
	}
	if (gs_check_most(wish, &most, why))
		return -1;
	if (wish->is_said[GS_WEIGHT])
		result->weight = wish->weight;
	if (wish->is_said[GS_CAP])
		result->cap = wish->cap;
	if (wish->is_said[GS_MEMORY])
		result->memory = wish->memory;
	if (wish->is_said[GS_PRIORITY])
		result->priority = wish->priority;
	for (int i = 0; i < GS_OPTIONS; i++)
		result->is_said[i] |= wish->is_said[i];
	return 0;
}

int gs_settings_json(const struct gs_wish *wish, char *text, size_t size)
{
	char cap[24], memory[24];
	int length;

	cap_text(wish->cap, cap, sizeof(cap));
	snprintf(memory, sizeof(memory), "%" PRIu64, wish->memory);
	length = snprintf(text, size, "\"weight\":\"%u\",\"priority\":\"%s\"%s%s%s%s%s%s",
			  wish->weight, gs_priority_names[wish->priority],
			  wish->is_said[GS_CAP] ? ",\"max\":\"" : "",
			  wish->is_said[GS_CAP] ? cap : "", wish->is_said[GS_CAP] ? "\"" : "",
			  wish->is_said[GS_MEMORY] ? ",\"memory_max\":\"" : "",
			  wish->is_said[GS_MEMORY] ? memory : "",
			  wish->is_said[GS_MEMORY] ? "\"" : "");
	return length < 0 || (size_t)length >= size ? -1 : length;
}

int gs_tenant_name(const struct gs_admin *admin, const char *user, const char *account,
		   uint32_t job, char *name)
{
	char path[2 * GS_TENANT_SIZE] = "";
	size_t length = 0;

	for (const char *at = admin->below; *at && length < GS_TENANT_SIZE; at++) {
		if (at[0] == '%' && (at[1] == 'u' || at[1] == 'a')) {
			length += (size_t)snprintf(path + length, GS_TENANT_SIZE, "%s",
						   at[1] == 'u' ? user : account);
			at++;
		} else {
			path[length++] = *at;
			path[length] = 0;
		}
	}
	if (length > 0 && length < GS_TENANT_SIZE &&
	    snprintf(name, GS_TENANT_SIZE, "%s/slurm-%" PRIu32, path, job) < GS_TENANT_SIZE)
		return 0;
	snprintf(name, GS_TENANT_SIZE, "slurm-%" PRIu32, job);
	return -1;
}

uint32_t gs_job_of_tenant(const char *name)
{
	const char *slash = strrchr(name, '/');
	unsigned int job = 0;

	return sscanf(slash ? slash + 1 : name, "slurm-%u", &job) == 1 ? job : 0;
}
