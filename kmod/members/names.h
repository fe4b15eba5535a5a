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

#define GS_NAME_MAX 63

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
