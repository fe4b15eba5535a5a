// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 1024
/* What follows the program's complaints once it has ended: a zero, whether a signal ended it, and
 * which, or its exit status. */
#define VERDICT 3

int gs_slurm_program(const char *name, char *path, size_t size)
{
	char own[256];
	const ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (length <= 0)
		return -1;
	own[length] = 0;
	for (int parts = 0; parts < 2; parts++) {
		char *slash = strrchr(own, '/');

		if (!slash)
			return -1;
		*slash = 0;
	}
	return snprintf(path, size, "%s/bin/%s", own, name) < (int)size ? 0 : -1;
}

/* The next three run in children of a process that may have threads: what a signal handler may call,
 * and no more. */

/* Leaves the daemon's session, and all of its descriptors: only complaints are heard. */
static void leave_daemon(int complaints)
{
	const int nothing = open("/dev/null", O_RDWR);

	setsid();
	complaints = fcntl(complaints, F_DUPFD, STDERR_FILENO + 1);
	dup2(nothing, STDIN_FILENO);
	dup2(nothing, STDOUT_FILENO);
	dup2(complaints, STDERR_FILENO);
	for (int fd = STDERR_FILENO + 1; fd < MOST_DESCRIPTORS; fd++)
		close(fd);
}

static void become(char *const words[], char *const environment[], unsigned int limit_s)
{
	static const char cannot[] = " cannot be run\n";
	static const int signals[] = { SIGALRM, SIGTERM, SIGINT, SIGPIPE, SIGCHLD };
	sigset_t none;

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	alarm(limit_s); /* outlives the exec */
	execve(words[0], words, environment);
	if (write(STDERR_FILENO, words[0], strlen(words[0])) > 0)
		(void)!write(STDERR_FILENO, cannot, sizeof(cannot) - 1);
	_exit(127);
}

/* Starts the program, lives beside it, and says how it ended. */
static void watch(char *const words[], char *const environment[], int complaints,
		  unsigned int limit_s)
{
	char verdict[VERDICT] = { 0 };
	int status;
	pid_t pid;

	leave_daemon(complaints);
	signal(SIGCHLD, SIG_DFL);
	pid = fork();
	if (pid == 0)
		become(words, environment, limit_s);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			pid = -1;
	if (pid < 0)
		_exit(1);
	verdict[1] = WIFSIGNALED(status) ? 1 : 0;
	verdict[2] = (char)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	(void)!write(STDERR_FILENO, verdict, sizeof(verdict));
	_exit(0);
}

int gs_start(const char *const words[], unsigned int limit_s)
{
	const char *configuration = getenv("SLURM_CONF");
	char path[] = "PATH=/usr/bin:/bin", where[512];
	char *const environment[] = { path, configuration ? where : NULL, NULL };
	int ends[2];
	pid_t pid;

	if (configuration &&
	    snprintf(where, sizeof(where), "SLURM_CONF=%s", configuration) >= (int)sizeof(where)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -1;
	pid = fork();
	if (pid == 0) {
		if (fork() == 0)
			watch((char *const *)words, environment, ends[1], limit_s);
		_exit(0);
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return -1;
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return ends[0];
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What is said until the other end is closed. The first of it is in `why`, the last in `verdict`.
 * Returns how much it was, or -1 if it was not closed within `limit_ms`. */
static ssize_t read_all(int fd, int limit_ms, char *why, size_t size, char verdict[VERDICT])
{
	const int64_t deadline = now_ms() + limit_ms;
	size_t length = 0;
	ssize_t all = 0;

	while (true) {
		struct pollfd waiting = { .fd = fd, .events = POLLIN };
		const int64_t left = deadline - now_ms();
		char piece[256];
		const ssize_t count = read(fd, piece, sizeof(piece));

		if (count == 0)
			return all;
		if (count < 0 && errno == EAGAIN && left > 0) {
			poll(&waiting, 1, (int)left);
			continue;
		}
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -1;
		for (ssize_t i = 0; i < count; i++) {
			if (length + 1 < size)
				why[length++] = piece[i];
			memmove(verdict, verdict + 1, VERDICT - 1);
			verdict[VERDICT - 1] = piece[i];
		}
		why[length] = 0;
		all += count;
	}
}

int gs_await_end(int fd, int limit_ms, char *why, size_t size)
{
	char verdict[VERDICT] = { 1 };
	ssize_t all;

	why[0] = 0;
	all = read_all(fd, limit_ms, why, size, verdict);
	close(fd);
	if (all >= VERDICT && verdict[0] == 0 && (size_t)(all - VERDICT) < size)
		why[all - VERDICT] = 0;
	why[strcspn(why, "\n")] = 0;
	if (all >= VERDICT && verdict[0] == 0 && verdict[1] == 0 && verdict[2] == 0)
		return 0;
	if (why[0])
		return -1;
	if (all < 0)
		snprintf(why, size, "no answer within %d ms", limit_ms);
	else if (all < VERDICT || verdict[0] != 0)
		snprintf(why, size, "nothing says how it ended");
	else
		snprintf(why, size, verdict[1] ? "ended by signal %d" : "ended with code %d",
			 verdict[2]);
	return -1;
}
