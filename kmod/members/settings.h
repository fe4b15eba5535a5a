/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The settings of a tenant, and the parsers of what is written to its attributes. Names, ranges and
 * defaults are those of uapi/settings.h, which user space shares. Every parser takes the text
 * without the final newline, and changes the settings only if it returns 0. It returns -EINVAL for
 * what it does not understand and -ERANGE for a number outside its range. This header is pure, and
 * tests/kmod also compile it in user space.
 */
#ifndef GPUSHARE_SETTINGS_H
#define GPUSHARE_SETTINGS_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>

#include "uapi/settings.h"
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kmod/uapi/settings.h"
#endif

/* What stands for "max" in struct gs_settings. */
#define GS_QUOTA_NONE 0
#define GS_MEMORY_NONE (~0ULL)
#define GS_SM_NONE 0

enum gs_priority { GS_PRIORITY_IDLE, GS_PRIORITY_NORMAL, GS_PRIORITY_HIGH };
enum gs_phase { GS_PHASE_AUTO, GS_PHASE_PREFILL, GS_PHASE_DECODE, GS_PHASE_NONE };
enum gs_gang { GS_GANG_AUTO, GS_GANG_TRUE, GS_GANG_FALSE };
enum gs_sm_shown { GS_SM_SHOWN_FALSE, GS_SM_SHOWN_TRUE };

/**
 * struct gs_settings - The settings of one tenant.
 * @weight: Its share of GPU time relative to the other tenants.
 * @quota_us: Its GPU time per @period_us on each GPU, GS_QUOTA_NONE for no cap.
 * @period_us: See @quota_us.
 * @priority: Its class of service.
 * @sm_percent: Its part of each GPU's multiprocessors, GS_SM_NONE for all.
 * @slo_us: The wanted time of one iteration, 0 for none.
 * @length_us: GPU time of one of its jobs, 0 if it is unknown.
 * @iterations: What one of its jobs makes in all, 0 if it is unknown.
 * @phase: What its iterations are said to be.
 * @gang: Whether its processes on several GPUs run there at the same time.
 * @sm_min: Its smallest part of a GPU's multiprocessors, in percent, 0 for none.
 * @sm_shown: Whether its programs are shown their part instead of the GPU's.
 * @memory_max: Its bytes of video memory on each GPU, GS_MEMORY_NONE for no limit.
 */
struct gs_settings {
	__u32 weight;
	__u32 quota_us;
	__u32 period_us;
	enum gs_priority priority;
	__u32 sm_percent;
	__u32 slo_us;
	__u64 length_us;
	__u64 iterations;
	enum gs_phase phase;
	enum gs_gang gang;
	__u32 sm_min;
	enum gs_sm_shown sm_shown;
	__u64 memory_max;
};

static inline void gs_settings_init(struct gs_settings *settings)
{
	settings->weight = GPUSHARE_WEIGHT_DEFAULT;
	settings->quota_us = GS_QUOTA_NONE;
	settings->period_us = GPUSHARE_PERIOD_US_DEFAULT;
	settings->priority = (enum gs_priority)GPUSHARE_PRIORITY_DEFAULT;
	settings->sm_percent = GS_SM_NONE;
	settings->slo_us = GPUSHARE_SLO_US_DEFAULT;
	settings->length_us = GPUSHARE_LENGTH_US_DEFAULT;
	settings->iterations = GPUSHARE_ITERATIONS_DEFAULT;
	settings->phase = (enum gs_phase)GPUSHARE_PHASE_DEFAULT;
	settings->gang = (enum gs_gang)GPUSHARE_GANG_DEFAULT;
	settings->sm_min = GPUSHARE_SM_MIN_DEFAULT;
	settings->sm_shown = (enum gs_sm_shown)GPUSHARE_SM_SHOWN_DEFAULT;
	settings->memory_max = GS_MEMORY_NONE;
}

static inline bool gs_text_is(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && memcmp(text, word, len) == 0;
}

/* It takes decimal digits only: no sign and no blank. -ERANGE: it does not fit into 64 bits. */
static inline int gs_parse_number(const char *text, size_t len, __u64 *number)
{
	__u64 value = 0;
	bool is_too_large = false;
	size_t i;

	if (len == 0)
		return -EINVAL;
	for (i = 0; i < len; i++) {
		unsigned int digit = (unsigned int)(text[i] - '0');

		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		if (value > (~0ULL - digit) / 10)
			is_too_large = true;
		else
			value = value * 10 + digit;
	}
	if (is_too_large)
		return -ERANGE;
	*number = value;
	return 0;
}

static inline int gs_parse_large(const char *text, size_t len, __u64 lowest, __u64 highest,
				 __u64 *number)
{
	__u64 value = 0;
	int err = gs_parse_number(text, len, &value);

	if (err)
		return err;
	if (value < lowest || value > highest)
		return -ERANGE;
	*number = value;
	return 0;
}

static inline int gs_parse_ranged(const char *text, size_t len, __u32 lowest, __u32 highest,
				  __u32 *number)
{
	__u64 value = 0;
	int err = gs_parse_large(text, len, lowest, highest, &value);

	if (!err)
		*number = (__u32)value;
	return err;
}

/*
 * GS_NUMBER_SETTING() - Defines gs_parse_NAME() for the setting @name, which is a number from
 * @range_MIN to @range_MAX; @parse goes with its size.
 */
#define GS_NUMBER_SETTING(name, parse, range)                                                      \
	static inline int gs_parse_##name(struct gs_settings *settings, const char *text,          \
					  size_t len)                                              \
	{                                                                                          \
		return parse(text, len, range##_MIN, range##_MAX, &settings->name);                \
	}

GS_NUMBER_SETTING(weight, gs_parse_ranged, GPUSHARE_WEIGHT)
GS_NUMBER_SETTING(slo_us, gs_parse_ranged, GPUSHARE_SLO_US)
GS_NUMBER_SETTING(length_us, gs_parse_large, GPUSHARE_LENGTH_US)
GS_NUMBER_SETTING(iterations, gs_parse_large, GPUSHARE_ITERATIONS)
GS_NUMBER_SETTING(sm_min, gs_parse_ranged, GPUSHARE_SM_MIN)

static inline int gs_parse_sm_percent(struct gs_settings *settings, const char *text, size_t len)
{
	if (gs_text_is(text, len, "max")) {
		settings->sm_percent = GS_SM_NONE;
		return 0;
	}
	return gs_parse_ranged(text, len, GPUSHARE_SM_PERCENT_MIN, GPUSHARE_SM_PERCENT_MAX,
			       &settings->sm_percent);
}

/*
 * It takes "max", or "QUOTA PERIOD" in us. As with cgroup v2's cpu.max, "QUOTA" and "max PERIOD"
 * are allowed too, and a period that is not named keeps its value.
 */
static inline int gs_parse_max(struct gs_settings *settings, const char *text, size_t len)
{
	const char *blank = (const char *)memchr(text, ' ', len);
	size_t first = blank ? (size_t)(blank - text) : len;
	__u32 quota = GS_QUOTA_NONE, period = settings->period_us;
	int err;

	if (blank) {
		err = gs_parse_ranged(blank + 1, len - first - 1, GPUSHARE_PERIOD_US_MIN,
				      GPUSHARE_PERIOD_US_MAX, &period);
		if (err)
			return err;
	}
	if (!gs_text_is(text, first, "max")) {
		err = gs_parse_ranged(text, first, GPUSHARE_QUOTA_US_MIN, period, &quota);
		if (err)
			return err;
	}
	settings->quota_us = quota;
	settings->period_us = period;
	return 0;
}

/* Returns the place of a name among the first @count of @names. */
static inline int gs_parse_name(const char *const *names, int count, const char *text, size_t len)
{
	int i;

	for (i = 0; i < count; i++) {
		if (gs_text_is(text, len, names[i]))
			return i;
	}
	return -EINVAL;
}

/*
 * GS_NAMED_SETTING() - Defines what a setting needs whose values are an enumeration's, each with a
 * name: gs_NAME_name(), and gs_parse_NAME(). @last is the enumeration's last value.
 */
#define GS_NAMED_SETTING(name, names, last)                                                        \
	static const char *const gs_##name##_names[] = names; /* by value */                       \
	static inline const char *gs_##name##_name(enum gs_##name name)                            \
	{                                                                                          \
		return gs_##name##_names[name];                                                    \
	}                                                                                          \
	static inline int gs_parse_##name(struct gs_settings *settings, const char *text,          \
					  size_t len)                                              \
	{                                                                                          \
		int value = gs_parse_name(gs_##name##_names, (last) + 1, text, len);               \
		if (value >= 0)                                                                    \
			settings->name = (enum gs_##name)value;                                    \
		return value < 0 ? value : 0;                                                      \
	}

GS_NAMED_SETTING(priority, GPUSHARE_PRIORITY_NAMES, GS_PRIORITY_HIGH)
GS_NAMED_SETTING(phase, GPUSHARE_PHASE_NAMES, GS_PHASE_NONE)
GS_NAMED_SETTING(gang, GPUSHARE_GANG_NAMES, GS_GANG_FALSE)
GS_NAMED_SETTING(sm_shown, GPUSHARE_SM_SHOWN_NAMES, GS_SM_SHOWN_TRUE)

/* It takes "max", or bytes from 1 on, perhaps with a suffix K, M, G or T (powers of 1024). */
static inline int gs_parse_memory_max(struct gs_settings *settings, const char *text, size_t len)
{
	static const char suffixes[] = GPUSHARE_BYTE_SUFFIXES;
	const char *suffix = NULL;
	unsigned int shift;
	__u64 number = 0;
	int err;

	if (gs_text_is(text, len, "max")) {
		settings->memory_max = GS_MEMORY_NONE;
		return 0;
	}
	if (len > 0)
		suffix = (const char *)memchr(suffixes, text[len - 1], sizeof(suffixes) - 1);
	shift = suffix ? 10 * (1 + (unsigned int)(suffix - suffixes) / 2) : 0;
	err = gs_parse_number(text, suffix ? len - 1 : len, &number);
	if (err)
		return err;
	if (number < GPUSHARE_MEMORY_MAX_MIN || number > GPUSHARE_MEMORY_MAX_MAX >> shift)
		return -ERANGE;
	settings->memory_max = number << shift;
	return 0;
}

/**
 * gs_budget_fits() - May @bytes more be taken?
 * @current_bytes: What is taken already.
 * @bytes: What is asked for.
 * @max: The limit, GS_MEMORY_NONE for none.
 *
 * Return: True if the sum is within the limit, and within 64 bits.
 */
static inline bool gs_budget_fits(__u64 current_bytes, __u64 bytes, __u64 max)
{
	if (bytes > ~0ULL - current_bytes)
		return false;
	return current_bytes + bytes <= max;
}

#endif /* GPUSHARE_SETTINGS_H */
