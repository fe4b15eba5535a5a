// SPDX-License-Identifier: Apache-2.0
/*
 * gpushare_spank.so: each Slurm job is a tenant of gpushare, slurm-JOBID, whose weight is what the
 * job's shards make; where the administrator says so it is below another tenant. Slurm calls it in
 * srun, sbatch and salloc (the options are checked), in slurmstepd as root (the step and its tasks
 * join, before exec) and in short-lived processes of slurmd before the job (its account is kept) and
 * when it has ended (the tenant goes). It links nothing, waits for the agent, and for slurmctld, for
 * LIMIT_MS at most each time, and refuses a job in its task only: a step that fails earlier would
 * make Slurm drain the node. docs/slurm.md is for users.
 */
#include <stdint.h>
#include <stdlib.h>

#pragma GCC visibility push(default)
#include <slurm/spank.h>
SPANK_PLUGIN(gpushare, 1)
#pragma GCC visibility pop

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "tools/slurm/agent.h"
#include "tools/slurm/child.h"
#include "tools/slurm/comment.h"
#include "tools/slurm/ended.h"
#include "tools/slurm/join.h"
#include "tools/slurm/kept.h"
#include "tools/slurm/settle.h"
#include "tools/slurm/write.h"

#define LIMIT_MS 1500
#define EXTERN_STEP 0xfffffffcu /* holds processes that no step started; runs none itself */

static struct gs_admin admin;
static struct gs_wish wish;
/* Why the job is to fail, or what is to be said to it; "": nothing. */
static char refusal[GS_WHY_SIZE];
static char complaint[GS_WHY_SIZE];
static bool has_joined;
static char joined[GS_TENANT_SIZE]; /* the job's tenant, if it has */
static int commenting = -1;         /* of gs_start(): its comment is being written */

static bool is_submitting(void)
{
	return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

static void note(char *text, const char *why)
{
	if (!*text)
		snprintf(text, GS_WHY_SIZE, "%s", why);
}

/* Says at once what is wrong where somebody submits a job; elsewhere its tasks will. */
static int refuse(const char *why)
{
	if (!is_submitting()) {
		note(refusal, why);
		return 0;
	}
	slurm_error("gpushare: %s", why);
	return -1;
}

static int take_option(int option, const char *text, int is_remote)
{
	char why[GS_WHY_SIZE];

	(void)is_remote;
	if (gs_parse_option(&wish, (enum gs_option)option, text, why))
		return refuse(why);
	return 0;
}

int slurm_spank_init(spank_t spank, int count, char *words[])
{
	/* Slurm keeps the texts, and takes them as its own to change. */
	static char names[GS_OPTIONS][24];
	static char values[GS_OPTIONS][16];
	static char abouts[GS_OPTIONS][96];
	char why[GS_WHY_SIZE], whole[GS_WHY_SIZE + 32];

	for (int i = 0; i < GS_OPTIONS; i++) {
		const struct gs_option_text *text = &gs_option_texts[i];
		struct spank_option option = {
			.name = names[i],
			.arginfo = values[i],
			.usage = abouts[i],
			.has_arg = 1,
			.val = i,
			.cb = take_option,
		};

		snprintf(names[i], sizeof(names[i]), "%s", text->name);
		snprintf(values[i], sizeof(values[i]), "%s", text->value);
		snprintf(abouts[i], sizeof(abouts[i]), "%s", text->about);
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			slurm_error("gpushare: Slurm does not take the option --%s", names[i]);
	}
	if (!gs_parse_admin(&admin, count, words, why))
		return 0;
	snprintf(whole, sizeof(whole), "plugstack.conf: %s", why);
	if (spank_context() == S_CTX_SLURMD) {
		slurm_error("gpushare: %s", whole);
		return -1;
	}
	return refuse(whole);
}

/* Fills `text`, of `size` bytes, with a variable of the job, or of whoever submits it. */
static bool variable(spank_t spank, const char *name, char *text, int size)
{
	const char *value;

	if (!is_submitting())
		return spank_getenv(spank, name, text, size) == ESPANK_SUCCESS;
	value = getenv(name);
	if (!value)
		return false;
	snprintf(text, (size_t)size, "%s", value);
	return true;
}

/* Options that are said by the environment. */
static int take_variables(spank_t spank)
{
	char text[64], why[GS_WHY_SIZE], whole[GS_WHY_SIZE + 64];

	for (int i = 0; i < GS_OPTIONS; i++) {
		const char *name = gs_option_texts[i].variable;

		if (wish.is_said[i] || !variable(spank, name, text, sizeof(text)) || !*text)
			continue;
		if (!gs_parse_option(&wish, (enum gs_option)i, text, why))
			continue;
		snprintf(whole, sizeof(whole), "$%s: %s", name, why);
		if (refuse(whole))
			return -1;
	}
	return 0;
}

/* Slurm sets or removes both variables in each step, whatever the user had there; see struct
 * gs_given for the one exception. */
static struct gs_given given_to(spank_t spank)
{
	struct gs_given given = { 0 };
	char text[256];

	if (spank_getenv(spank, "SLURM_SHARDS_ON_NODE", text, sizeof(text)) == ESPANK_SUCCESS)
		given.shards = gs_parse_count(text, UINT32_MAX / GS_WEIGHT_MAX);
	if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", text, sizeof(text)) == ESPANK_SUCCESS)
		given.gpus = gs_list_length(text);
	return given;
}

static int remove_tenant(const char *tenant)
{
	char request[128], answer[GS_ANSWER_SIZE];
	enum gs_outcome outcome;

	snprintf(request, sizeof(request), "{\"op\":\"remove\",\"tenant\":\"%s\"}", tenant);
	outcome = gs_ask(admin.socket, request, LIMIT_MS, answer);
	if (outcome == GS_DONE) {
		char line[160], used[GS_SECONDS_SIZE], throttled[GS_SECONDS_SIZE];

		snprintf(line, sizeof(line),
			 "gpushare: job %" PRIu32 " used %s GPU seconds, was throttled for %s s",
			 gs_job_of_tenant(tenant),
			 gs_seconds(gs_member_number(answer, "gpu_time_ns", 0), used),
			 gs_seconds(gs_member_number(answer, "throttled_ns", 0), throttled));
		slurm_info("%s", line);
		syslog(LOG_DAEMON | LOG_INFO, "%s", line);
	} else if (outcome == GS_ABSENT) {
		slurm_info("gpushare: %s has ended: %s", tenant, answer);
		return -1;
	}
	return 0; /* refused: the tenant is gone, or never was */
}

/* The names that the job's tenant may have, the wished one first: below another one, and at the top,
 * where there is no such other. Returns how many there are. */
static int tenant_names(spank_t spank, uint32_t job, char names[2][GS_TENANT_SIZE])
{
	char buffer[1024], user[GS_TENANT_SIZE] = "", account[GS_KEPT_SIZE] = "";
	struct passwd entry, *found = NULL;
	uid_t uid = 0;

	/* The name service may be slow. */
	if (strstr(admin.below, "%u") && spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS &&
	    !getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) && found)
		snprintf(user, sizeof(user), "%s", found->pw_name);
	if (strstr(admin.below, "%a"))
		gs_look_up(admin.socket, GS_ACCOUNT, job, account);
	if (gs_tenant_name(&admin, user, account, job, names[0]))
		return 1;
	snprintf(names[1], GS_TENANT_SIZE, "slurm-%" PRIu32, job);
	return 2;
}

static uint32_t number_of(spank_t spank, spank_item_t item)
{
	uint32_t number = 0;

	return spank_get_item(spank, item, &number) == ESPANK_SUCCESS ? number : 0;
}

/* In slurmstepd. Of several nodes one speaks for all. */
static int begin_step_comment(spank_t spank, char *job)
{
	gs_job_name(number_of(spank, S_JOB_ID), number_of(spank, S_JOB_ARRAY_ID),
		    number_of(spank, S_JOB_ARRAY_TASK_ID), job);
	return number_of(spank, S_JOB_NODEID) ?
		       -1 :
		       gs_write_comment(admin.socket, joined, job, GS_AT_SLURMCTLD, LIMIT_MS);
}

/* slurmctld takes it while the job runs. Of one that was cancelled only slurmdbd does; there the epilog
 * writes it, when all has ended. */
static void end_step_comment(spank_t spank)
{
	char why[GS_WHY_SIZE], job[GS_JOB_SIZE];
	const uint32_t number = number_of(spank, S_JOB_ID);
	int fd;

	if (commenting >= 0)
		(void)gs_await_end(commenting, LIMIT_MS, why, sizeof(why));
	commenting = -1;
	fd = begin_step_comment(spank, job);
	if (fd < 0)
		return;
	if (!gs_await_end(fd, LIMIT_MS, why, sizeof(why))) {
		gs_forget(admin.socket, GS_UNACCOUNTED, number);
		return;
	}
	slurm_info("gpushare: job %" PRIu32 ": its AdminComment is as it was: %s", number, why);
	if (admin.comment == GS_COMMENT_ACCOUNTING &&
	    gs_keep(admin.socket, GS_UNACCOUNTED, number, job))
		slurm_error("gpushare: the use of job %s will not be accounted: %m", job);
}

/* In the epilog; nobody waits for it. */
static void account_for(uint32_t number, char names[2][GS_TENANT_SIZE], int count)
{
	char job[GS_KEPT_SIZE];
	int fd = -1;

	gs_look_up(admin.socket, GS_UNACCOUNTED, number, job);
	for (int i = 0; *job && i < count && fd < 0; i++)
		fd = gs_write_comment(admin.socket, names[i], job, GS_AT_SLURMDBD, LIMIT_MS);
	if (fd >= 0)
		close(fd);
	gs_forget(admin.socket, GS_UNACCOUNTED, number);
}

/* The step belongs to the job's tenant, and with it all that it will start. */
static void join(spank_t spank, uint32_t job)
{
	struct gs_step step = { .admin = &admin, .wish = &wish, .given = given_to(spank) };
	char name[GS_JOB_SIZE], answer[GS_ANSWER_SIZE];
	const char *tenant = "";
	enum gs_joined outcome;

	step.count = tenant_names(spank, job, step.names);
	gs_take_ended(admin.socket, remove_tenant);
	outcome = gs_join(&step, LIMIT_MS, &tenant, answer);
	has_joined = outcome == GS_JOINED || outcome == GS_JOINED_FIRST;
	if (has_joined) {
		snprintf(joined, sizeof(joined), "%s", tenant);
		if (outcome == GS_JOINED_FIRST && admin.comment != GS_COMMENT_NONE)
			commenting = begin_step_comment(spank, name);
	} else if (outcome == GS_TOO_MUCH) {
		snprintf(refusal, sizeof(refusal), "%.255s", answer);
	} else if (admin.is_agent_required) {
		snprintf(refusal, sizeof(refusal), "the job may not run without gpushare: %.180s",
			 answer);
	} else {
		snprintf(complaint, sizeof(complaint), "the job runs without a share: %.180s",
			 answer);
		slurm_error("gpushare: job %" PRIu32 ": %s", job, complaint);
	}
}

int slurm_spank_init_post_opt(spank_t spank, int count, char *words[])
{
	uint32_t job = 0, step = 0;
	char why[GS_WHY_SIZE];

	(void)count, (void)words;
	if (!is_submitting() && !spank_remote(spank))
		return 0;
	if (take_variables(spank))
		return -1;
	if (is_submitting())
		return gs_check_most(&wish, &admin.most, why) ? refuse(why) : 0;
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == EXTERN_STEP)
		return 0;
	if (!*refusal)
		join(spank, job);
	return 0;
}

/* In the task, as root, before it becomes the user's program. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char *words[])
{
	char request[128], answer[GS_ANSWER_SIZE];
	uint32_t job = 0;
	int task = 0;

	(void)count, (void)words;
	if (*refusal) {
		slurm_spank_log("gpushare: %s", refusal);
		return -1;
	}
	if (*complaint && spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0)
		slurm_spank_log("gpushare: %s", complaint);
	if (!has_joined || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return 0;
	snprintf(request, sizeof(request), "{\"op\":\"attach\",\"pid\":%d,\"tenant\":\"%s\"}",
		 (int)getpid(), joined);
	if (gs_ask(admin.socket, request, LIMIT_MS, answer) == GS_DONE)
		return 0;
	slurm_error("gpushare: job %" PRIu32 ": a task may have no share: %.180s", job, answer);
	return admin.is_agent_required ? -1 : 0;
}

/* In slurmstepd. After the last task Slurm does not know yet that the step has ended; a job that is no
 * more than one step has ended with it a moment later. */
int slurm_spank_task_exit(spank_t spank, int count, char *words[])
{
	static uint32_t ended;

	(void)count, (void)words;
	if (has_joined && admin.comment != GS_COMMENT_NONE &&
	    ++ended == number_of(spank, S_JOB_LOCAL_TASK_COUNT))
		end_step_comment(spank);
	return 0;
}

/* By slurmd, as root, before the job's first step on the node. A failure would drain the node. */
int slurm_spank_job_prolog(spank_t spank, int count, char *words[])
{
	const char *account = getenv("SLURM_JOB_ACCOUNT");
	char why[GS_WHY_SIZE];
	uint32_t job = 0;

	if (!gs_parse_admin(&admin, count, words, why) && strstr(admin.below, "%a") && account &&
	    spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	    gs_keep(admin.socket, GS_ACCOUNT, job, account))
		slurm_error("gpushare: the account of job %" PRIu32 " is not kept: %m", job);
	return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char *words[])
{
	char why[GS_WHY_SIZE], names[2][GS_TENANT_SIZE];
	uint32_t job = 0;
	bool is_absent = false;

	/* Slurm does not call slurm_spank_init() in this process. */
	if (gs_parse_admin(&admin, count, words, why))
		slurm_error("gpushare: plugstack.conf: %s", why);
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return 0;
	gs_take_ended(admin.socket, remove_tenant);
	count = tenant_names(spank, job, names);
	account_for(job, names, count);
	for (int i = count - 1; i >= 0; i--) {
		is_absent = is_absent || remove_tenant(names[i]);
		if (is_absent && gs_note_ended(admin.socket, names[i]))
			slurm_error("gpushare: %s stays until 'gpushare remove': %m", names[i]);
	}
	if (strstr(admin.below, "%a"))
		gs_forget(admin.socket, GS_ACCOUNT, job);
	return 0;
}
