/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The settings of a tenant: one table for the kernel module (C) and for user space (C and C++).
 * Names, ranges, defaults and the texts that a person reads are stated here and nowhere else: the
 * module's attributes in sysfs, the keys of the configuration file, of the control socket and of
 * `gpushare set`, both parsers and their error messages are made from it. The two parsers are the
 * module's own settings.h and shmctl/settings/tenant_settings.h; tests/kmod compares them.
 *
 * Preprocessor definitions only, without any include. Ranges include both ends.
 */
#ifndef GPUSHARE_UAPI_SETTINGS_H
#define GPUSHARE_UAPI_SETTINGS_H

#define GPUSHARE_WEIGHT_MIN 1
#define GPUSHARE_WEIGHT_MAX 10000
#define GPUSHARE_WEIGHT_DEFAULT 100

/*
 * `max`: GPU time in microseconds (quota) per period, in microseconds too. A quota is never more
 * than its period. The smallest values are one millisecond, as in cgroup v2's cpu.max.
 */
#define GPUSHARE_PERIOD_US_MIN 1000
#define GPUSHARE_PERIOD_US_MAX 1000000
#define GPUSHARE_PERIOD_US_DEFAULT 100000
#define GPUSHARE_QUOTA_US_MIN 1000

#define GPUSHARE_SM_PERCENT_MIN 1
#define GPUSHARE_SM_PERCENT_MAX 100

#define GPUSHARE_SM_MIN_MIN 0 /* 0 means that none is asked for */
#define GPUSHARE_SM_MIN_MAX 100
#define GPUSHARE_SM_MIN_DEFAULT 0

#define GPUSHARE_SLO_US_MIN 0 /* 0 means no target */
#define GPUSHARE_SLO_US_MAX 1000000000
#define GPUSHARE_SLO_US_DEFAULT 0

/* Of one job of the tenant: its GPU time, alone, and its iterations. 0 means unknown. */
#define GPUSHARE_LENGTH_US_MIN 0
#define GPUSHARE_LENGTH_US_MAX 1000000000000
#define GPUSHARE_LENGTH_US_DEFAULT 0
#define GPUSHARE_ITERATIONS_MIN 0
#define GPUSHARE_ITERATIONS_MAX 1000000000000
#define GPUSHARE_ITERATIONS_DEFAULT 0

/* Bytes; the largest 64-bit number stands for "max" in both programs and cannot be written. */
#define GPUSHARE_MEMORY_MAX_MIN 1
#define GPUSHARE_MEMORY_MAX_MAX 0xFFFFFFFFFFFFFFFEULL
/*
 * The suffixes of a number of bytes, each in both cases: the first pair multiplies by 1024, each
 * further one by 1024 more.
 */
#define GPUSHARE_BYTE_SUFFIXES "KkMmGgTt"

/* Names of the priorities, by their number in the control plane and in the module. */
#define GPUSHARE_PRIORITY_NAMES { "idle", "normal", "high" }
#define GPUSHARE_PRIORITY_DEFAULT 1

/* Names of what a tenant's iterations are said to be, by their number in the same places. */
#define GPUSHARE_PHASE_NAMES { "auto", "prefill", "decode", "none" }
#define GPUSHARE_PHASE_DEFAULT 0

/* Names of whether a tenant is a gang, in the same way. */
#define GPUSHARE_GANG_NAMES { "auto", "true", "false" }
#define GPUSHARE_GANG_DEFAULT 0

/* Names of whether programs are shown their partition, in the same way. */
#define GPUSHARE_SM_SHOWN_NAMES { "false", "true" }
#define GPUSHARE_SM_SHOWN_DEFAULT 0

#define GPUSHARE_TEXT_OF(token) #token
#define GPUSHARE_TEXT(macro) GPUSHARE_TEXT_OF(macro)
#define GPUSHARE_RANGE_TEXT(least, most) GPUSHARE_TEXT(least) " to " GPUSHARE_TEXT(most)

/*
 * ROW(key, NAME, value, allowed, initial, about), in the order in which the settings are listed:
 *   key      the name of the setting, and of its file in sysfs
 *   NAME     the setting in GPUSHARE_SETTING_NAME (gpushare.h)
 *   value    what stands for a value in help ("N")
 *   allowed  what a value may be, for a person
 *   initial  the default, as it is written
 *   about    what the setting means, in one sentence without its end
 */
/* clang-format off */
#define GPUSHARE_SETTINGS(ROW)                                                                     \
	ROW(weight, WEIGHT, "N", GPUSHARE_RANGE_TEXT(GPUSHARE_WEIGHT_MIN, GPUSHARE_WEIGHT_MAX),    \
	    GPUSHARE_TEXT(GPUSHARE_WEIGHT_DEFAULT),                                                \
	    "share of GPU time relative to the other tenants")                                     \
	ROW(max, MAX, "CAP",                                                                       \
	    "max, a percentage from 1% to 100%, or 'QUOTA PERIOD' in us with period "              \
	    GPUSHARE_RANGE_TEXT(GPUSHARE_PERIOD_US_MIN, GPUSHARE_PERIOD_US_MAX)                    \
	    " and quota " GPUSHARE_TEXT(GPUSHARE_QUOTA_US_MIN) " to period",                       \
	    "max", "the most GPU time that it may take, on each GPU")                              \
	ROW(priority, PRIORITY, "CLASS", "idle, normal or high", "normal",                         \
	    "idle runs in what the others leave, and high before all others")                      \
	ROW(memory_max, MEMORY_MAX, "BYTES",                                                       \
	    "max, or bytes from " GPUSHARE_TEXT(GPUSHARE_MEMORY_MAX_MIN)                           \
	    " on, with an optional suffix K, M, G or T (or KiB to TiB)",                           \
	    "max", "the most GPU memory that it may hold, on each GPU")                            \
	ROW(sm_percent, SM_PERCENT, "N",                                                           \
	    "max, or " GPUSHARE_RANGE_TEXT(GPUSHARE_SM_PERCENT_MIN, GPUSHARE_SM_PERCENT_MAX),      \
	    "max", "its part of the SMs of a GPU that is shared spatially, in percent")            \
	ROW(slo_us, SLO_US, "US", GPUSHARE_RANGE_TEXT(GPUSHARE_SLO_US_MIN, GPUSHARE_SLO_US_MAX),   \
	    GPUSHARE_TEXT(GPUSHARE_SLO_US_DEFAULT),                                                \
	    "target time of one iteration in microseconds; 0 is none")                             \
	ROW(length_us, LENGTH_US, "US",                                                            \
	    GPUSHARE_RANGE_TEXT(GPUSHARE_LENGTH_US_MIN, GPUSHARE_LENGTH_US_MAX),                   \
	    GPUSHARE_TEXT(GPUSHARE_LENGTH_US_DEFAULT),                                             \
	    "GPU time of one of its jobs, alone, in microseconds; 0 is unknown")                   \
	ROW(iterations, ITERATIONS, "N",                                                           \
	    GPUSHARE_RANGE_TEXT(GPUSHARE_ITERATIONS_MIN, GPUSHARE_ITERATIONS_MAX),                 \
	    GPUSHARE_TEXT(GPUSHARE_ITERATIONS_DEFAULT),                                            \
	    "iterations that one of its jobs makes in all; 0 is unknown")                          \
	ROW(phase, PHASE, "PHASE", "auto, prefill, decode or none", "auto",                        \
	    "what it does of a language model's work; auto is what each program shows")            \
	ROW(gang, GANG, "BOOL", "auto, true or false", "auto",                                     \
	    "its processes run on several GPUs in the same instants; "                             \
	    "auto is as [agent] gangs says")                                                       \
	ROW(sm_min, SM_MIN, "N", GPUSHARE_RANGE_TEXT(GPUSHARE_SM_MIN_MIN, GPUSHARE_SM_MIN_MAX),    \
	    GPUSHARE_TEXT(GPUSHARE_SM_MIN_DEFAULT),                                                \
	    "its smallest part of the SMs of a GPU that is shared spatially, in percent")          \
	ROW(sm_shown, SM_SHOWN, "BOOL", "true or false", "false",                                  \
	    "its programs are shown the SMs of their partition instead of the GPU's")
/* clang-format on */

#endif /* GPUSHARE_UAPI_SETTINGS_H */
