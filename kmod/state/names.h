/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which names a tenant may have, and which cgroup paths a rule matches. Pure; also compiled in user
 * space, by tests/kmod.
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
 * gs_name_is_valid() - may a tenant be called so?
 * @name: bytes, not terminated
 * @len: how many
 *
 * Letters, digits, '_', '.', '-'; 1 to 63 of them; not starting with '.' or '-'.
 *
 * Return: true when it may.
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
 * gs_glob_matches() - does all of @text match @pattern?
 * @pattern: terminated; '*' stands for any bytes, '/' too, '?' for any one, all else for itself
 * @text: terminated
 *
 * The same rules as the agent's glob_matches(). No recursion; time at worst the product of both
 * lengths.
 *
 * Return: true when it does.
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
