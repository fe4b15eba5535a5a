/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job wants of a GPU, and how much of that it may have: the options of users, those of the
 * administrator, and what follows from shards. Pure functions without I/O; any thread may call.
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

/* Of the line in plugstack.conf. */
struct gs_admin {
	char socket[108];
	bool is_agent_required;
	uint32_t weight_per_shard; /* 1 to 10000 */
	uint32_t shards;           /* of one GPU, 1 to 10000; must be said */
	uint64_t memory_per_shard; /* bytes; GS_NO_MEMORY: jobs have no limit of their own */
	enum gs_priority priority; /* of jobs that ask for none */
	struct gs_wish most;       /* what users may ask for; unsaid: what their shards give */
};

/* What Slurm gave the step on this node. Not all of it is Slurm's word: beside a whole GPU the
 * variable for shards is the user's. So more shards than the GPUs have are refused; up to that,
 * whoever owns whole GPUs has them anyway. */
struct gs_given {
	uint32_t shards; /* 0: none */
	uint32_t gpus;   /* that the step sees; 0: none */
};

/* Parses what a user said for `option`, and takes it into `wish`. */
int gs_parse_option(struct gs_wish *wish, enum gs_option option, const char *text, char *why);
/* Makes of the words of plugstack.conf what the administrator wants; without any, the defaults. */
int gs_parse_admin(struct gs_admin *admin, int count, char *const words[], char *why);

/* Refuses what is more than `most` allows, as far as it says something: for where the shards are
 * not known yet, as on the machine where a job is submitted. */
int gs_check_most(const struct gs_wish *wish, const struct gs_wish *most, char *why);
/* Settles what the job gets: what it said, within what it may have, and for the rest what its
 * shards give. Refuses what is more. `result` says all but a cap and memory that are unlimited. */
int gs_settle(const struct gs_wish *wish, const struct gs_admin *admin, struct gs_given given,
	      struct gs_wish *result, char *why);

/* Writes the settings as the members of a JSON object in the agent's words, without its braces:
 * "weight":"20","max":"30%". Returns the length, or -1 if `size` bytes are too few. */
int gs_settings_json(const struct gs_wish *wish, char *text, size_t size);

/* Returns the number of entries of a list such as CUDA_VISIBLE_DEVICES ("0,1"); 0 for "". */
uint32_t gs_list_length(const char *list);
/* Parses a number from 1 to `most`; 0 if it is none. */
uint32_t gs_parse_count(const char *text, uint32_t most);

#ifdef __cplusplus
}
#endif

#endif
