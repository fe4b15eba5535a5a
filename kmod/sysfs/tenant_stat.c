// SPDX-License-Identifier: GPL-2.0
/* The attributes that tell what a tenant used, waited for, and was refused. All are read-only. */
#include "sysfs/tenant.h"

static u64 gs_count(const atomic64_t *number)
{
	return atomic64_read(number);
}

GS_SHOW(memory_current, "%llu", gs_count(&view->counter->memory_current))
GS_SHOW(memory_peak, "%llu", gs_count(&view->counter->memory_peak))
GS_SHOW(contexts_current, "%llu", gs_count(&view->counter->contexts))
GS_SHOW(memory_refused, "%llu", gs_count(&view->counter->memory_refused))
GS_SHOW(controls_refused, "%llu", gs_count(&view->counter->controls_refused))
GS_SHOW(gpu_time_us, "%llu", view->figures.published.gpu_time_us)
GS_SHOW(throttled_us, "%llu", view->figures.published.throttled_us)
GS_SHOW(freezes, "%llu", view->figures.published.freezes)
GS_SHOW(turns, "%llu", view->figures.published.turns)
GS_SHOW(held_us, "%llu", view->figures.published.held_us)

/* As in cgroup v2, it is one file, so that one poll covers them. */
static ssize_t gs_show_events(const struct gs_tenant_view *view, char *buf)
{
	const struct gs_counter *counter = view->counter;

	return sysfs_emit(buf, "memory_max %llu\ncontexts_max %llu\ncontrols %llu\nfreezes %llu\n",
			  gs_count(&counter->memory_refused), gs_count(&counter->contexts_refused),
			  gs_count(&counter->controls_refused), view->figures.published.freezes);
}

static ssize_t gs_show_share_permille(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.published.share_permille == GPUSHARE_UNKNOWN)
		return sysfs_emit(buf, "unknown\n");
	return sysfs_emit(buf, "%u\n", view->figures.published.share_permille);
}

/* In the form of cgroup v2's cpu.stat. */
static ssize_t gs_show_stat(const struct gs_tenant_view *view, char *buf)
{
	const struct gpushare_usage *published = &view->figures.published;

	int len = sysfs_emit(buf, "usage_usec %llu\nnr_periods %llu\n", published->gpu_time_us,
			     published->periods);

	return len + sysfs_emit_at(buf, len, "nr_throttled %llu\nthrottled_usec %llu\n",
				   published->throttled_periods, published->throttled_us);
}

static int gs_emit_pressure(char *buf, int at, const char *kind,
			    const struct gpushare_pressure *pressure)
{
	return sysfs_emit_at(buf, at, "%s avg10=%u.%02u avg60=%u.%02u avg300=%u.%02u total=%llu\n",
			     kind, pressure->avg10 / 100, pressure->avg10 % 100,
			     pressure->avg60 / 100, pressure->avg60 % 100, pressure->avg300 / 100,
			     pressure->avg300 % 100, pressure->total_us);
}

/* In the form of the kernel's pressure stall information. */
static ssize_t gs_show_pressure(const struct gs_tenant_view *view, char *buf)
{
	int len = gs_emit_pressure(buf, 0, "some", &view->figures.published.some);

	return len + gs_emit_pressure(buf, len, "full", &view->figures.published.full);
}

GS_READ_ONLY(gpu_time_us);
GS_READ_ONLY(share_permille);
GS_READ_ONLY(throttled_us);
GS_READ_ONLY(freezes);
GS_READ_ONLY(turns);
GS_READ_ONLY(held_us);
GS_READ_ONLY(memory_current);
GS_READ_ONLY(memory_peak);
GS_READ_ONLY(contexts_current);
GS_READ_ONLY(events);
GS_READ_ONLY(memory_refused);
GS_READ_ONLY(controls_refused);
GS_READ_ONLY(stat);
GS_READ_ONLY(pressure);
