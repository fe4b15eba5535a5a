/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job wants of a GPU, and what the administrator allows: the options of users, and those of
 * the line in plugstack.conf. Pure functions without I/O; any thread may call.
 * A function that can refuse returns 0, or -1 with a text in `why` that names what was wrong and
 * what is allowed.
 */
#ifndef GPUSHARE_SLURM_WISH_H
#define GPUSHARE_SLURM_WISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_WHY_SIZE 256
#define GS_WEIGHT_MAX 10000u
#define GS_CAP_MAX 100000u /* thousandths of a percent: the whole GPU */

#define GS_NO_MEMORY UINT64_MAX

enum gs_option { GS_WEIGHT, GS_CAP, GS_MEMORY, GS_PRIORITY, GS_OPTIONS };
enum gs_priority { GS_IDLE, GS_NORMAL, GS_HIGH };
extern const char *const gs_priority_names[]; /* as they are written */

/* What a user may say, by option: a name for messages, the variable of the environment that says
 * the same, what a value looks like, and what it means. */
struct gs_option_text {
	const char *name;
	const char *variable;
	const char *value;
	const char *about;
};
extern const struct gs_option_text gs_option_texts[GS_OPTIONS];

struct gs_wish {
	bool is_said[GS_OPTIONS]; /* false: the member of that option means nothing */
	uint32_t weight;          /* 1 to 10000 */
	uint32_t cap;             /* thousandths of a percent, 1000 to 100000 */
	uint64_t memory;          /* bytes, 1 or more */
	enum gs_priority priority;
};

/* Where a job's limits and use are written besides the log. */
enum gs_comment_place {
	GS_COMMENT_NONE,
	GS_COMMENT_ADMIN,      /* its AdminComment at slurmctld, while it runs */
	GS_COMMENT_ACCOUNTING, /* and in slurmdbd's records, if it is no longer running */
};

/* Of the line in plugstack.conf. */
struct gs_admin {
	char socket[108];
	char below[64]; /* the tenant below which jobs' tenants are, if it is there; %u: user,
			   %a: account; "": none */
	bool is_agent_required;
	enum gs_comment_place comment;
	uint32_t weight_per_shard; /* 1 to 10000 */
	uint32_t shards;           /* of one GPU, 1 to 10000; must be said */
	uint64_t memory_per_shard; /* bytes; GS_NO_MEMORY: jobs have no limit of their own */
	enum gs_priority priority; /* of jobs that ask for none */
	struct gs_wish most;       /* what users may ask for; unsaid: what their shards give */
};

/* Parses what a user said for `option`, and takes it into `wish`. */
int gs_parse_option(struct gs_wish *wish, enum gs_option option, const char *text, char *why);
/* Makes of the words of plugstack.conf what the administrator wants; without any, the defaults. */
int gs_parse_admin(struct gs_admin *admin, int count, char *const words[], char *why);

/* Returns the number of entries of a list such as CUDA_VISIBLE_DEVICES ("0,1"); 0 for "". */
uint32_t gs_list_length(const char *list);
/* Writes the text into `why`, of GS_WHY_SIZE bytes, and returns -1. */
int gs_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Parses a number from 1 to `most`; 0 if it is none. */
uint32_t gs_parse_count(const char *text, uint32_t most);

#ifdef __cplusplus
}
#endif

#endif
