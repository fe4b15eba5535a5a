/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's control socket (sched/README.md), for a program that links nothing. Every wait is
 * bounded, so that a stuck agent holds up no daemon. It starts no process and no thread, so that it
 * may run in any of Slurm's.
 */
#ifndef GPUSHARE_SLURM_AGENT_H
#define GPUSHARE_SLURM_AGENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_ANSWER_SIZE 4096

enum gs_outcome {
	GS_DONE,
	GS_REFUSED, /* the agent answered that it would not; the answer is its reason */
	GS_ABSENT,  /* no agent runs, or it does not answer; the answer says which */
};

/* Sends one request, a JSON object without its newline, and waits for the answer, in all for
 * `limit_ms` at most. An agent that was killed a moment ago is waited for. `answer`: of
 * GS_ANSWER_SIZE bytes; on GS_DONE the agent's line, otherwise a reason in words. */
enum gs_outcome gs_ask(const char *socket_path, const char *request, int limit_ms, char *answer);

/* Finds a member of the agent's answer that is a text or a number, not in an object within it.
 * Returns its characters between quotes, without reading escapes, or those of the number, and their
 * number in `length`; NULL if there is none. */
const char *gs_member(const char *json, const char *name, int *length);
/* The same as a number; `otherwise` if it is none. */
uint64_t gs_member_number(const char *json, const char *name, uint64_t otherwise);

#ifdef __cplusplus
}
#endif

#endif
