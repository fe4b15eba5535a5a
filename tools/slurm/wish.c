// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/wish.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN 1000u /* the agent's shortest quota, of its usual period */
#define USUAL_SOCKET "/run/gpushare/agent.sock"

const struct gs_option_text gs_option_texts[GS_OPTIONS] = {
	[GS_WEIGHT] = { "gpu-weight", "GPUSHARE_WEIGHT", "N",
			"gpushare: weight on the GPU, 1 to 10000 (what the job's shards give)" },
	[GS_CAP] = { "gpu-cap", "GPUSHARE_CAP", "N%",
		     "gpushare: at most this part of a GPU's time, 1% to 100% (no cap)" },
	[GS_MEMORY] = { "gpu-mem", "GPUSHARE_MEM", "SIZE",
			"gpushare: at most so much memory of a GPU, as 500M or 12G" },
	[GS_PRIORITY] = { "gpu-priority", "GPUSHARE_PRIORITY", "CLASS",
			  "gpushare: idle, normal or high" },
};

const char *const gs_priority_names[] = { "idle", "normal", "high" };

int gs_refuse(char *why, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, GS_WHY_SIZE, format, arguments);
	va_end(arguments);
	return -1;
}

static int not_allowed(char *why, const char *name, const char *text, const char *allowed)
{
	return gs_refuse(why, "%s: '%.40s' is not allowed; allowed: %s", name, text, allowed);
}

uint32_t gs_parse_count(const char *text, uint32_t most)
{
	char *end;
	unsigned long number;

	if (!isdigit((unsigned char)*text))
		return 0;
	errno = 0;
	number = strtoul(text, &end, 10);
	return errno || *end || number < 1 || number > most ? 0 : (uint32_t)number;
}

uint32_t gs_list_length(const char *list)
{
	uint32_t count = *list ? 1 : 0;

	for (; *list; list++)
		count += *list == ',';
	return count;
}

/* Parses digits with up to `places` decimals, in units of the last one, and moves `text` behind
 * it. Returns UINT64_MAX if there is no number, or it is out of range. */
static uint64_t parse_decimal(const char **text, unsigned int places)
{
	const uint64_t limit = UINT64_C(1) << 52;
	uint64_t number = 0;
	bool is_behind_point = false;
	const char *at = *text;

	if (!isdigit((unsigned char)*at))
		return UINT64_MAX;
	for (;; at++) {
		if (*at == '.' && !is_behind_point && isdigit((unsigned char)at[1])) {
			is_behind_point = true;
			continue;
		}
		if (!isdigit((unsigned char)*at))
			break;
		if (is_behind_point && !places--)
			return UINT64_MAX;
		number = number * 10 + (uint64_t)(*at - '0');
		if (number > limit)
			return UINT64_MAX;
	}
	for (; places; places--)
		number *= 10;
	*text = at;
	return number > limit ? UINT64_MAX : number;
}

/* Thousandths of a percent; 0 if it is none. */
static uint32_t parse_cap(const char *text)
{
	uint64_t number;

	if (!strcmp(text, "max"))
		return GS_CAP_MAX;
	number = parse_decimal(&text, 3);
	if (strcmp(text, "%") || number < CAP_MIN || number > GS_CAP_MAX)
		return 0;
	return (uint32_t)number;
}

/* Bytes; 0 if it is none. */
static uint64_t parse_memory(const char *text)
{
	static const char suffixes[] = "KMGT";
	const uint64_t thousandths = parse_decimal(&text, 3);
	const char *suffix;
	unsigned int shift;

	if (thousandths == UINT64_MAX)
		return 0;
	if (!*text)
		return thousandths % 1000 ? 0 : thousandths / 1000;
	suffix = strchr(suffixes, toupper((unsigned char)*text));
	if (!suffix || (strcmp(text + 1, "") && strcmp(text + 1, "iB") && strcmp(text + 1, "B")))
		return 0;
	shift = 10u * (unsigned int)(suffix - suffixes + 1);
	if (thousandths / 1000 >= UINT64_C(1) << (62 - shift))
		return 0;
	return (thousandths / 1000 << shift) + ((thousandths % 1000 << shift) / 1000);
}

static int parse_priority(const char *text)
{
	for (int i = GS_IDLE; i <= GS_HIGH; i++)
		if (!strcmp(text, gs_priority_names[i]))
			return i;
	return -1;
}

/* The same for users and the administrator, who name it otherwise. */
static int parse_value(struct gs_wish *wish, enum gs_option option, const char *name,
		       const char *text, char *why)
{
	int priority;

	switch (option) {
	case GS_WEIGHT:
		wish->weight = gs_parse_count(text, GS_WEIGHT_MAX);
		if (!wish->weight)
			return not_allowed(why, name, text, "1 to 10000");
		break;
	case GS_CAP:
		wish->cap = parse_cap(text);
		if (!wish->cap)
			return not_allowed(why, name, text,
					   "1% to 100%, with 3 decimals at most, or max");
		break;
	case GS_MEMORY:
		wish->memory = parse_memory(text);
		if (!wish->memory)
			return not_allowed(why, name, text,
					   "a number of bytes, also with K, M, G or T: 12G");
		break;
	default:
		priority = parse_priority(text);
		if (priority < 0)
			return not_allowed(why, name, text, "idle, normal, high");
		wish->priority = (enum gs_priority)priority;
	}
	wish->is_said[option] = true;
	return 0;
}

int gs_parse_option(struct gs_wish *wish, enum gs_option option, const char *text, char *why)
{
	char name[32];
	struct gs_wish said = *wish;

	snprintf(name, sizeof(name), "--%s", gs_option_texts[option].name);
	if (parse_value(&said, option, name, text ? text : "", why))
		return -1;
	*wish = said;
	return 0;
}

static int parse_comment(struct gs_admin *admin, const char *text, char *why)
{
	static const char *const places[] = { "none", "admin", "accounting" };

	for (int i = GS_COMMENT_NONE; i <= GS_COMMENT_ACCOUNTING; i++) {
		if (!strcmp(text, places[i])) {
			admin->comment = (enum gs_comment_place)i;
			return 0;
		}
	}
	return not_allowed(why, "comment", text, "none, admin, accounting");
}

/* One of the words that is a name or a number; 1 if it is another one. */
static int parse_own(struct gs_admin *admin, const char *name, const char *text, char *why)
{
	struct gs_wish value = { 0 };

	if (!strcmp(name, "socket")) {
		if (*text != '/' || strlen(text) >= sizeof(admin->socket))
			return not_allowed(why, name, text, "a path of at most 107 characters");
		strcpy(admin->socket, text);
		return 0;
	}
	if (!strcmp(name, "below")) {
		if (!*text || strlen(text) >= sizeof(admin->below))
			return not_allowed(why, name, text,
					   "a tenant's name, in which %u is the user's and %a "
					   "that of the account");
		strcpy(admin->below, text);
		return 0;
	}
	if (!strcmp(name, "comment"))
		return parse_comment(admin, text, why);
	if (!strcmp(name, "priority")) {
		if (parse_value(&value, GS_PRIORITY, name, text, why))
			return -1;
		admin->priority = value.priority;
		return 0;
	}
	if (!strcmp(name, "weight_per_shard") || !strcmp(name, "shards")) {
		const uint32_t number = gs_parse_count(text, GS_WEIGHT_MAX);

		if (!number)
			return not_allowed(why, name, text, "1 to 10000");
		*(*name == 'w' ? &admin->weight_per_shard : &admin->shards) = number;
		return 0;
	}
	if (!strcmp(name, "mem_per_shard")) {
		if (parse_value(&value, GS_MEMORY, name, text, why))
			return -1;
		admin->memory_per_shard = value.memory;
		return 0;
	}
	return 1;
}

static int parse_word(struct gs_admin *admin, const char *word, char *why)
{
	static const char *const most[GS_OPTIONS] = { "max_weight", "max_cap", "max_mem",
						      "max_priority" };
	const char *text = strchr(word, '=');
	const size_t length = text ? (size_t)(text - word) : 0;
	char name[24];
	int result;

	if (!strcmp(word, "require_agent")) {
		admin->is_agent_required = true;
		return 0;
	}
	if (!text || length >= sizeof(name))
		goto unknown;
	memcpy(name, word, length);
	name[length] = 0;
	text++;
	for (int i = 0; i < GS_OPTIONS; i++)
		if (!strcmp(name, most[i]))
			return parse_value(&admin->most, (enum gs_option)i, name, text, why);
	result = parse_own(admin, name, text, why);
	if (result <= 0)
		return result;
unknown:
	return gs_refuse(why,
			 "'%.40s' is not known; known: socket=, require_agent, below=, shards=, "
			 "weight_per_shard=, mem_per_shard=, priority=, max_weight=, max_cap=, "
			 "max_mem=, max_priority=, comment=",
			 word);
}

int gs_parse_admin(struct gs_admin *admin, int count, char *const words[], char *why)
{
	*admin = (struct gs_admin){
		.socket = USUAL_SOCKET,
		.weight_per_shard = 10,
		.memory_per_shard = GS_NO_MEMORY,
		.priority = GS_NORMAL,
		.most = { .is_said[GS_PRIORITY] = true, .priority = GS_NORMAL },
	};
	for (int i = 0; i < count; i++)
		if (parse_word(admin, words[i], why))
			return -1;
	if (!admin->shards)
		return gs_refuse(why,
				 "shards= is missing: how many shards one GPU has in gres.conf");
	/* What jobs get unasked they may ask for. */
	if (admin->most.priority < admin->priority)
		admin->most.priority = admin->priority;
	if (admin->most.is_said[GS_WEIGHT] && admin->weight_per_shard > admin->most.weight)
		return gs_refuse(why, "weight_per_shard=%u is above max_weight=%u",
				 admin->weight_per_shard, admin->most.weight);
	return 0;
}
