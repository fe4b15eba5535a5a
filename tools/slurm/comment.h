/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands of a job in Slurm's own records, in its AdminComment: what binds it and what it used,
 * on this node. Pure functions without I/O; any thread may call.
 */
#ifndef GPUSHARE_SLURM_COMMENT_H
#define GPUSHARE_SLURM_COMMENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_SECONDS_SIZE 32
/* Writes nanoseconds as seconds with 3 decimals into `text`, of GS_SECONDS_SIZE bytes. */
const char *gs_seconds(uint64_t ns, char *text);

#define GS_COMMENT_SIZE 320
/* Makes of the agent's answer to `use` the words "gpushare: node=n1 weight=20 cap=30% mem=max
 * priority=normal gpu_seconds=1.500 throttled_seconds=0.000" in `text`, of GS_COMMENT_SIZE bytes.
 * `node`: its name, or NULL. Nothing in them means anything to a shell or a database. */
void gs_comment(const char *answer, const char *node, char *text);

#define GS_JOB_SIZE 24
/* Writes the name of a job as Slurm's programs want it into `text`, of GS_JOB_SIZE bytes. An element of
 * an array is named by that, as the first one's number means all of them to them. */
void gs_job_name(uint32_t job, uint32_t array, uint32_t element, char *text);

#ifdef __cplusplus
}
#endif

#endif
