// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/ended.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_AT_ONCE 256
#define LOCK_TRIES 20
#define LOCK_PAUSE_US 5000

/* Nobody keeps the lock for long, but a stopped process might. */
static int lock(int fd)
{
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB); tries++) {
		if (tries >= LOCK_TRIES)
			return -1;
		usleep(LOCK_PAUSE_US);
	}
	return 0;
}

/* Open and locked, or -1. */
static int open_list(const char *socket_path, int flags)
{
	char path[256];
	const char *slash = strrchr(socket_path, '/');
	const int length = slash ? (int)(slash - socket_path) : 0;
	int fd;

	snprintf(path, sizeof(path), "%.*s/slurm-ended", length, socket_path);
	fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && lock(fd)) {
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

/* What is left of the list, from the first name on that was not taken. */
static const char *take_names(const char *list, int (*remove)(const char *tenant))
{
	for (int count = 0; *list && count < MOST_AT_ONCE; count++) {
		const size_t length = strcspn(list, "\n");
		char tenant[64];

		if (length > 0 && length < sizeof(tenant)) {
			memcpy(tenant, list, length);
			tenant[length] = '\0';
			if (remove(tenant))
				break;
		}
		list += length + (list[length] == '\n');
	}
	return list;
}

/* It is written before the rest is cut off, so that a full disk loses no name. */
static int keep(int fd, const char *rest, size_t size)
{
	return pwrite(fd, rest, size, 0) == (ssize_t)size && !ftruncate(fd, (off_t)size) ? 0 : -1;
}

void gs_take_ended(const char *socket_path, int (*remove)(const char *tenant))
{
	const int fd = open_list(socket_path, 0);
	struct stat about;
	char *list = NULL;
	ssize_t size = 0;

	if (fd < 0)
		return;
	if (!fstat(fd, &about) && about.st_size > 0)
		list = malloc((size_t)about.st_size + 1);
	if (list)
		size = read(fd, list, (size_t)about.st_size);
	if (list && size == about.st_size) {
		const char *rest;

		list[size] = '\0';
		rest = take_names(list, remove);
		if (rest > list)
			(void)keep(fd, rest, (size_t)(list + size - rest));
	}
	free(list);
	close(fd);
}
