/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which names a tenant may have, and which cgroup paths a rule matches. This header is pure, and
 * tests/kmod also compile it in user space.
 */
#ifndef GPUSHARE_NAMES_H
#define GPUSHARE_NAMES_H

#include <linux/types.h>
#ifndef __KERNEL__
#include <stdbool.h>
#include <stddef.h>
#endif

#define GS_NAME_MAX 63 /* of a whole path */
#define GS_DEPTH_MAX 4

/**
 * gs_name_is_valid() - May a tenant have this name?
 * @name: The name, not terminated.
 * @len: Its length in bytes.
 *
 * A name has 1 to 63 letters, digits, '_', '.' and '-', and does not begin with '.' or '-'.
 *
 * Return: True if it may.
 */
static inline bool gs_name_is_valid(const char *name, size_t len)
{
	size_t i;

	if (len == 0 || len > GS_NAME_MAX || name[0] == '.' || name[0] == '-')
		return false;
	for (i = 0; i < len; i++) {
		char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '.' || c == '-'))
			return false;
	}
	return true;
}

/**
 * gs_path_is_valid() - May a tenant have this path?
 * @path: The path from tenants/ on, not terminated.
 * @len: Its length in bytes.
 *
 * A path has 1 to GS_DEPTH_MAX names with a '/' between each two, and GS_NAME_MAX bytes at most.
 *
 * Return: True if it may.
 */
static inline bool gs_path_is_valid(const char *path, size_t len)
{
	size_t begin = 0, i;
	int depth = 1;

	if (len > GS_NAME_MAX)
		return false;
	for (i = 0; i < len; i++) {
		if (path[i] != '/')
			continue;
		if (++depth > GS_DEPTH_MAX || !gs_name_is_valid(path + begin, i - begin))
			return false;
		begin = i + 1;
	}
	return gs_name_is_valid(path + begin, len - begin);
}

/**
 * gs_path_parent() - Measure the path of the tenant above.
 * @path: A valid path.
 * @len: Its length in bytes.
 *
 * Return: How many of its first bytes name that tenant; 0 if there is none above.
 */
static inline size_t gs_path_parent(const char *path, size_t len)
{
	while (len > 0 && path[len - 1] != '/')
		len--;
	return len > 0 ? len - 1 : 0;
}

/**
 * gs_glob_matches() - Does all of @text match @pattern?
 * @pattern: A pattern, zero-terminated. '*' stands for any number of bytes, also of '/', '?' stands
 *	for any one byte, and every other byte for itself.
 * @text: A text, zero-terminated.
 *
 * The rules are those of the agent's glob_matches(). There is no recursion, and it takes at worst
 * time in proportion to the product of both lengths.
 *
 * Return: True if it does.
 */
static inline bool gs_glob_matches(const char *pattern, const char *text)
{
	const char *star = NULL, *retry = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = ++pattern;
			retry = text;
		} else if (*pattern && (*pattern == '?' || *pattern == *text)) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star;
			text = ++retry;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

#endif /* GPUSHARE_NAMES_H */
