// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define PATH_SIZE 256

static const char *path_of(const char *socket_path, enum gs_kept what, uint32_t job, char *path)
{
	static const char *const names[] = { "account", "unaccounted" };
	const char *slash = strrchr(socket_path, '/');
	const int length = slash ? (int)(slash - socket_path) : 0;

	snprintf(path, PATH_SIZE, "%.*s/slurm-%s-%" PRIu32, length, socket_path, names[what], job);
	return path;
}

int gs_keep(const char *socket_path, enum gs_kept what, uint32_t job, const char *text)
{
	const size_t length = strlen(text);
	char path[PATH_SIZE];
	const int fd = open(path_of(socket_path, what, job, path),
			    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	ssize_t written;
	int reason;

	if (fd < 0)
		return -1;
	written = write(fd, text, length);
	reason = written < 0 ? errno : ENOSPC;
	close(fd);
	if (written == (ssize_t)length)
		return 0;
	gs_forget(socket_path, what, job);
	errno = reason;
	return -1;
}

void gs_look_up(const char *socket_path, enum gs_kept what, uint32_t job, char *text)
{
	char path[PATH_SIZE];
	const int fd =
		open(path_of(socket_path, what, job, path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t length = -1;

	if (fd >= 0) {
		length = read(fd, text, GS_KEPT_SIZE);
		close(fd);
	}
	if (length < 0 || length == GS_KEPT_SIZE)
		length = 0;
	text[length] = 0;
	/* An account is whatever word a user has chosen, where Slurm does not check it. */
	if (strspn(text, LETTERS "0123456789_.-") != (size_t)length || *text == '.' || *text == '-')
		*text = 0;
}

void gs_forget(const char *socket_path, enum gs_kept what, uint32_t job)
{
	char path[PATH_SIZE];

	unlink(path_of(socket_path, what, job, path));
}
