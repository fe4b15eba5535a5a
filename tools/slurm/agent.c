// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BETWEEN_TRIES_MS 20

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns whether the socket is ready before the deadline. */
static bool await(int fd, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd waiting = { .fd = fd, .events = events };
		const int64_t left = deadline - now_ms();
		const int ready = left > 0 ? poll(&waiting, 1, (int)left) : 0;

		if (ready > 0)
			return true;
		if (ready == 0 || errno != EINTR)
			return false;
	}
}

static enum gs_outcome absent(char *answer, const char *path, const char *reason)
{
	snprintf(answer, GS_ANSWER_SIZE, "no agent at %s: %s", path, reason);
	return GS_ABSENT;
}

/* A connection, or -1 with errno. A socket without a listener is that of an agent which was
 * killed: its supervisor starts the next one within a second. */
static int connect_to(const char *path, int64_t deadline)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	for (;;) {
		const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int reason;

		if (fd < 0)
			return -1;
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		reason = errno;
		close(fd);
		errno = reason;
		/* EAGAIN: its queue of connections is full. */
		if ((reason != ECONNREFUSED && reason != EAGAIN && reason != EINTR) ||
		    now_ms() >= deadline)
			return -1;
		poll(NULL, 0, BETWEEN_TRIES_MS);
	}
}

/* Sends the bytes, or returns -1. */
static int send_all(int fd, const char *bytes, size_t count, int64_t deadline)
{
	while (count) {
		const ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

		if (sent >= 0) {
			bytes += sent;
			count -= (size_t)sent;
		} else if (errno == EAGAIN) {
			if (!await(fd, POLLOUT, deadline))
				return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return 0;
}

/* Reads up to a newline, which it drops, or returns -1. */
static int read_line(int fd, char *line, int64_t deadline)
{
	size_t length = 0;

	while (length < GS_ANSWER_SIZE) {
		const ssize_t count = recv(fd, line + length, GS_ANSWER_SIZE - length, 0);
		char *end;

		if (count > 0) {
			end = memchr(line + length, '\n', (size_t)count);
			if (end) {
				*end = 0;
				return 0;
			}
			length += (size_t)count;
		} else if (count == 0) {
			return -1;
		} else if (errno == EAGAIN) {
			if (!await(fd, POLLIN, deadline))
				return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return -1;
}

static bool has_code(const char *answer, const char *code)
{
	int length;
	const char *const is = gs_member(answer, "code", &length);

	return is && (size_t)length == strlen(code) && !strncmp(is, code, (size_t)length);
}

enum gs_outcome gs_ask(const char *socket_path, const char *request, int limit_ms, char *answer)
{
	const int64_t deadline = now_ms() + limit_ms;

	/* An agent that dies in the middle of a request may have done it; all that is asked here
	 * may be asked twice. */
	for (;;) {
		const int fd = connect_to(socket_path, deadline);
		bool is_answered;

		if (fd < 0)
			return absent(answer, socket_path, strerror(errno));
		is_answered = !send_all(fd, request, strlen(request), deadline) &&
			      !send_all(fd, "\n", 1, deadline) && !read_line(fd, answer, deadline);
		close(fd);
		if (is_answered && !has_code(answer, "busy"))
			break;
		if (now_ms() >= deadline)
			return absent(answer, socket_path,
				      is_answered ? "it has no room" : "it does not answer");
		poll(NULL, 0, BETWEEN_TRIES_MS);
	}
	const char *error, *ok;
	int length;

	ok = gs_member(answer, "ok", &length);
	if (ok && length == 4 && !strncmp(ok, "true", 4))
		return GS_DONE;
	error = gs_member(answer, "error", &length);
	if (!error)
		return absent(answer, socket_path, "it answers something else");
	memmove(answer, error, (size_t)length);
	answer[length] = 0;
	return GS_REFUSED;
}

/* Returns the end of a string that begins at its quote, behind the closing one. */
static const char *behind_string(const char *at)
{
	for (at++; *at && *at != '"'; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at ? at + 1 : at;
}

const char *gs_member(const char *json, const char *name, int *length)
{
	const size_t name_length = strlen(name);
	int depth = 0;

	for (const char *at = json; *at;) {
		const char *end;
		bool is_it;

		if (*at != '"') {
			depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
			at++;
			continue;
		}
		end = behind_string(at);
		is_it = depth == 1 && *end == ':' && end - at == (long)name_length + 2 &&
			!strncmp(at + 1, name, name_length);
		at = end;
		if (!is_it)
			continue;
		at++;
		if (*at == '"') {
			end = behind_string(at);
			*length = (int)(end - at) - 2;
			return *length < 0 ? NULL : at + 1;
		}
		*length = (int)strcspn(at, ",}]");
		return at;
	}
	return NULL;
}

uint64_t gs_member_number(const char *json, const char *name, uint64_t otherwise)
{
	int length;
	const char *text = gs_member(json, name, &length);

	if (!text || length < 1 || *text < '0' || *text > '9')
		return otherwise;
	return strtoull(text, NULL, 10);
}
