/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An attribute of a tenant's directory. tenant.c has the settings and what is common to all,
 * tenant_stat.c what the tenant used, and tenant_gpus.c what is listed by GPU.
 */
#ifndef GPUSHARE_SYSFS_TENANT_H
#define GPUSHARE_SYSFS_TENANT_H

#include <linux/sysfs.h>

#include "members/tenant.h"

/* What an attribute shows: a copy of the tenant's figures, and its counter, which needs no lock. */
struct gs_tenant_view {
	struct gs_figures figures;
	const struct gs_counter *counter;
};

/*
 * A setting has either @parse or @store, which are called with gs_lock, and an order has @act,
 * which is called without. An attribute with none of them is read-only. A rule of a tenant that a
 * user made is written by an administrator only, because it may claim other users' processes.
 */
struct gs_tenant_attribute {
	struct attribute attr;
	ssize_t (*show)(const struct gs_tenant_view *view, char *buf);
	int (*parse)(struct gs_settings *settings, const char *text, size_t len);
	int (*store)(struct gs_figures *figures, const char *text, size_t len);
	int (*act)(struct gs_tenant *tenant, const char *text, size_t len);
	bool is_rule;
	enum gpushare_setting setting;
};

/* Defines gs_show_NAME(). */
#define GS_SHOW(_name, _format, _value)                                                            \
	static ssize_t gs_show_##_name(const struct gs_tenant_view *view, char *buf)               \
	{                                                                                          \
		return sysfs_emit(buf, _format "\n", _value);                                      \
	}

/* Defines gs_attribute_NAME. */
#define GS_ATTRIBUTE(_name, _mode, ...)                                                            \
	struct gs_tenant_attribute gs_attribute_##_name = {                                        \
		.attr = { .name = #_name, .mode = _mode }, .show = gs_show_##_name, __VA_ARGS__    \
	}
#define GS_READ_ONLY(_name) GS_ATTRIBUTE(_name, 0444)
#define GS_STORED(_name, _setting)                                                                 \
	GS_ATTRIBUTE(_name, 0644, .store = gs_store_##_name, .setting = GPUSHARE_SETTING_##_setting)

/*
 * For an attribute whose writers remove the same attribute of another tenant. lockdep knows it by
 * its name alone, and would take the removal for a wait for the writer itself.
 */
#ifdef CONFIG_DEBUG_LOCK_ALLOC
#define GS_OF_EACH_TENANT .ignore_lockdep = true
#else
#define GS_OF_EACH_TENANT
#endif

/* tenant_stat.c */
extern struct gs_tenant_attribute gs_attribute_gpu_time_us, gs_attribute_share_permille,
	gs_attribute_throttled_us, gs_attribute_freezes, gs_attribute_memory_current,
	gs_attribute_memory_peak, gs_attribute_contexts_current, gs_attribute_events,
	gs_attribute_memory_refused, gs_attribute_controls_refused, gs_attribute_stat,
	gs_attribute_pressure, gs_attribute_turns, gs_attribute_held_us;

/* tenant_gpus.c */
extern struct gs_tenant_attribute gs_attribute_gpu_max, gs_attribute_gpu_memory_current,
	gs_attribute_gpu_memory_max, gs_attribute_gpu_usage;

#endif /* GPUSHARE_SYSFS_TENANT_H */
