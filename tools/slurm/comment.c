// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/comment.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/slurm/agent.h"

#define NO_ELEMENT 0xfffffffeu /* Slurm's NO_VAL */

const char *gs_seconds(uint64_t ns, char *text)
{
	snprintf(text, GS_SECONDS_SIZE, "%" PRIu64 ".%03u", ns / 1000000000,
		 (unsigned int)(ns / 1000000 % 1000));
	return text;
}

static bool is_plain(char letter)
{
	return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
	       (letter >= '0' && letter <= '9') || strchr("%.-_", letter);
}

/* Adds " name=value", of the value's first characters; a blank within it, and what is not plain, is
 * a '/'. */
static void add(char *text, const char *name, const char *value, int length)
{
	size_t end = strlen(text);

	if (length > 40)
		length = 40;
	end += (size_t)snprintf(text + end, GS_COMMENT_SIZE - end, " %s=", name);
	for (int i = 0; i < length && value[i] && end < GS_COMMENT_SIZE - 1; i++)
		text[end++] = (char)(is_plain(value[i]) ? value[i] : '/');
	text[end] = 0;
}

void gs_comment(const char *answer, const char *node, char *text)
{
	static const char *const names[][2] = { { "weight", "weight" },
						{ "cap", "max" },
						{ "mem", "memory_max" },
						{ "priority", "priority" } };
	static const char *const uses[][2] = { { "gpu_seconds", "gpu_time_ns" },
					       { "throttled_seconds", "throttled_ns" } };
	char seconds[GS_SECONDS_SIZE];
	int length;
	const char *settings = gs_member(answer, "settings", &length);

	strcpy(text, "gpushare:");
	if (node)
		add(text, "node", node, (int)strlen(node));
	for (size_t i = 0; settings && i < sizeof(names) / sizeof(*names); i++) {
		const char *value = gs_member(settings, names[i][1], &length);

		if (value)
			add(text, names[i][0], value, length);
	}
	for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
		gs_seconds(gs_member_number(answer, uses[i][1], 0), seconds);
		add(text, uses[i][0], seconds, (int)strlen(seconds));
	}
}

void gs_job_name(uint32_t job, uint32_t array, uint32_t element, char *text)
{
	if (array && element < NO_ELEMENT)
		snprintf(text, GS_JOB_SIZE, "%" PRIu32 "_%" PRIu32, array, element);
	else
		snprintf(text, GS_JOB_SIZE, "%" PRIu32, job);
}
