// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/ended.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_AT_ONCE 256

/* Open and locked, or -1. Nobody keeps the lock for long, but a stopped process might. */
static int open_list(const char *socket_path, int flags)
{
	char path[256];
	const char *slash = strrchr(socket_path, '/');
	const int length = slash ? (int)(slash - socket_path) : 0;
	int fd;

	snprintf(path, sizeof(path), "%.*s/slurm-ended", length, socket_path);
	fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return -1;
	}
	return fd;
}

int gs_note_ended(const char *socket_path, const char *tenant)
{
	const int fd = open_list(socket_path, O_CREAT | O_APPEND);
	int result;

	if (fd < 0)
		return -1;
	result = dprintf(fd, "%s\n", tenant) < 0 ? -1 : 0;
	close(fd);
	return result;
}

void gs_take_ended(const char *socket_path, int (*remove)(const char *tenant))
{
	static char tenants[MOST_AT_ONCE][64];
	int count = 0, done = 0;
	const int fd = open_list(socket_path, O_APPEND);
	FILE *list = fd < 0 ? NULL : fdopen(fd, "r+");

	if (!list) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (count < MOST_AT_ONCE && fscanf(list, "%63s", tenants[count]) == 1)
		count++;
	while (done < count && !remove(tenants[done]))
		done++;
	if (done > 0 && !ftruncate(fd, 0))
		for (; done < count; done++)
			dprintf(fd, "%s\n", tenants[done]);
	fclose(list);
}
