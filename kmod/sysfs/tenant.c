// SPDX-License-Identifier: GPL-2.0
/*
 * The attributes of a tenant's directory except procs. A setting is taken over whole or not at all.
 * A program that polls the attribute, `generation` or the event stream learns of it.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat/version.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"

/* What an attribute shows: a copy of the tenant's figures, and its counter, which needs no lock. */
struct gs_tenant_view {
	struct gs_figures figures;
	const struct gs_counter *counter;
};

/* An attribute. A setting has either @parse or @store; an attribute with neither is read-only. */
struct gs_tenant_attribute {
	struct attribute attr;
	ssize_t (*show)(const struct gs_tenant_view *tenant, char *buf);
	int (*parse)(struct gs_settings *settings, const char *text, size_t len);
	int (*store)(struct gs_figures *figures, const char *text, size_t len);
	enum gpushare_setting setting;
};

static struct gs_tenant *gs_tenant_of(struct kobject *kobj)
{
	return container_of(kobj, struct gs_tenant, kobj);
}

static ssize_t gs_tenant_show(struct kobject *kobj, struct attribute *attr, char *buf)
{
	struct gs_tenant_attribute *attribute =
		container_of(attr, struct gs_tenant_attribute, attr);
	struct gs_tenant *tenant = gs_tenant_of(kobj);
	struct gs_tenant_view view gs_uninitialized;

	mutex_lock(&gs_lock);
	view.figures = tenant->figures;
	mutex_unlock(&gs_lock);
	view.counter = &tenant->counter;
	return attribute->show(&view, buf);
}

static ssize_t gs_tenant_store(struct kobject *kobj, struct attribute *attr, const char *buf,
			       size_t count)
{
	struct gs_tenant_attribute *attribute =
		container_of(attr, struct gs_tenant_attribute, attr);
	size_t len = gs_line_length(buf, count);
	struct gs_tenant *tenant = gs_tenant_of(kobj);
	struct gs_figures figures gs_uninitialized;
	int err;

	if (!attribute->parse && !attribute->store)
		return -EACCES;
	mutex_lock(&gs_lock);
	figures = tenant->figures;
	if (tenant->is_removed)
		err = -ENODEV;
	else if (attribute->parse)
		err = attribute->parse(&figures.settings, buf, len);
	else
		err = attribute->store(&figures, buf, len);
	if (!err)
		gs_tenant_set(tenant, &figures, attribute->setting);
	mutex_unlock(&gs_lock);
	if (err)
		return err;
	sysfs_notify(kobj, NULL, attr->name);
	return count;
}

static u64 gs_count(const atomic64_t *number)
{
	return atomic64_read(number);
}

#define GS_SHOW(_name, _format, _value)                                                            \
	static ssize_t gs_show_##_name(const struct gs_tenant_view *view, char *buf)               \
	{                                                                                          \
		return sysfs_emit(buf, _format "\n", _value);                                      \
	}

GS_SHOW(weight, "%u", view->figures.settings.weight)
GS_SHOW(priority, "%s", gs_priority_name(view->figures.settings.priority))
GS_SHOW(slo_us, "%u", view->figures.settings.slo_us)
GS_SHOW(match_cgroup, "%s", view->figures.match_cgroup)
GS_SHOW(memory_current, "%llu", gs_count(&view->counter->memory_current))
GS_SHOW(memory_peak, "%llu", gs_count(&view->counter->memory_peak))
GS_SHOW(contexts_current, "%llu", gs_count(&view->counter->contexts))
GS_SHOW(gpu_time_us, "%llu", view->figures.published.gpu_time_us)
GS_SHOW(throttled_us, "%llu", view->figures.published.throttled_us)
GS_SHOW(freezes, "%llu", view->figures.published.freezes)
GS_SHOW(memory_refused, "%llu", gs_count(&view->counter->memory_refused))
GS_SHOW(controls_refused, "%llu", gs_count(&view->counter->controls_refused))

static ssize_t gs_show_max(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.settings.quota_us == GS_QUOTA_NONE)
		return sysfs_emit(buf, "max %u\n", view->figures.settings.period_us);
	return sysfs_emit(buf, "%u %u\n", view->figures.settings.quota_us,
			  view->figures.settings.period_us);
}

static ssize_t gs_show_memory_max(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.settings.memory_max == GS_MEMORY_NONE)
		return sysfs_emit(buf, "max\n");
	return sysfs_emit(buf, "%llu\n", view->figures.settings.memory_max);
}

static ssize_t gs_show_sm_percent(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.settings.sm_percent == GS_SM_NONE)
		return sysfs_emit(buf, "max\n");
	return sysfs_emit(buf, "%u\n", view->figures.settings.sm_percent);
}

static ssize_t gs_show_contexts_max(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.contexts_max == GS_CONTEXTS_NONE)
		return sysfs_emit(buf, "max\n");
	return sysfs_emit(buf, "%u\n", view->figures.contexts_max);
}

static int gs_store_contexts_max(struct gs_figures *figures, const char *text, size_t len)
{
	if (gs_text_is(text, len, "max")) {
		figures->contexts_max = GS_CONTEXTS_NONE;
		return 0;
	}
	return gs_parse_ranged(text, len, 0, GS_CONTEXTS_MAX, &figures->contexts_max);
}

/* As in cgroup v2, it is one file, so that one poll covers them. */
static ssize_t gs_show_events(const struct gs_tenant_view *view, char *buf)
{
	const struct gs_counter *counter = view->counter;

	return sysfs_emit(buf, "memory_max %llu\ncontexts_max %llu\ncontrols %llu\nfreezes %llu\n",
			  gs_count(&counter->memory_refused), gs_count(&counter->contexts_refused),
			  gs_count(&counter->controls_refused), view->figures.published.freezes);
}

/* An empty line removes the rule. A pattern is of a whole path, so it starts with '/' or '*'. */
static int gs_store_match_cgroup(struct gs_figures *figures, const char *text, size_t len)
{
	size_t i;

	if (len >= sizeof(figures->match_cgroup))
		return -ERANGE;
	if (len > 0 && text[0] != '/' && text[0] != '*')
		return -EINVAL;
	for (i = 0; i < len; i++) {
		if (text[i] == '\0' || text[i] == '\n')
			return -EINVAL;
	}
	memcpy(figures->match_cgroup, text, len);
	figures->match_cgroup[len] = '\0';
	return 0;
}

static ssize_t gs_show_match_uid(const struct gs_tenant_view *view, char *buf)
{
	const struct gs_figures *figures = &view->figures;

	return figures->has_match_uid ? sysfs_emit(buf, "%u\n", __kuid_val(figures->match_uid)) :
					sysfs_emit(buf, "\n");
}

/* The last number, (uid_t)-1, is no user. */
static int gs_store_match_uid(struct gs_figures *figures, const char *text, size_t len)
{
	u32 uid = 0;
	int err = len ? gs_parse_ranged(text, len, 0, U32_MAX - 1, &uid) : 0;

	if (err)
		return err;
	figures->has_match_uid = len > 0;
	figures->match_uid = KUIDT_INIT(uid);
	return 0;
}

static ssize_t gs_show_share_permille(const struct gs_tenant_view *view, char *buf)
{
	if (view->figures.published.share_permille == GPUSHARE_UNKNOWN)
		return sysfs_emit(buf, "unknown\n");
	return sysfs_emit(buf, "%u\n", view->figures.published.share_permille);
}

/* clang-format off */
#define GS_ATTRIBUTE(_name, _mode, ...)                                                            \
	static struct gs_tenant_attribute gs_attribute_##_name = {                                 \
		.attr = { .name = #_name, .mode = _mode },                                         \
		.show = gs_show_##_name,                                                           \
		__VA_ARGS__                                                                        \
	}
#define GS_PARSED(_name, _setting)                                                                 \
	GS_ATTRIBUTE(_name, 0644, .parse = gs_parse_##_name, .setting = GPUSHARE_SETTING_##_setting)
#define GS_STORED(_name, _setting)                                                                 \
	GS_ATTRIBUTE(_name, 0644, .store = gs_store_##_name, .setting = GPUSHARE_SETTING_##_setting)
#define GS_READ_ONLY(_name) GS_ATTRIBUTE(_name, 0444)

#define GS_SETTING(_key, _name, ...) GS_PARSED(_key, _name);
GPUSHARE_SETTINGS(GS_SETTING)
GS_STORED(contexts_max, CONTEXTS_MAX);
GS_STORED(match_cgroup, MATCH_CGROUP);
GS_STORED(match_uid, MATCH_UID);
GS_READ_ONLY(gpu_time_us);
GS_READ_ONLY(share_permille);
GS_READ_ONLY(throttled_us);
GS_READ_ONLY(freezes);
GS_READ_ONLY(memory_current);
GS_READ_ONLY(memory_peak);
GS_READ_ONLY(contexts_current);
GS_READ_ONLY(events);
GS_READ_ONLY(memory_refused);
GS_READ_ONLY(controls_refused);

static struct attribute *gs_tenant_attrs[] = {
#define GS_LISTED(_key, ...) &gs_attribute_##_key.attr,
	GPUSHARE_SETTINGS(GS_LISTED)
	&gs_attribute_contexts_max.attr,
	&gs_attribute_match_cgroup.attr,
	&gs_attribute_match_uid.attr,
	&gs_attribute_gpu_time_us.attr,
	&gs_attribute_share_permille.attr,
	&gs_attribute_throttled_us.attr,
	&gs_attribute_freezes.attr,
	&gs_attribute_memory_current.attr,
	&gs_attribute_memory_peak.attr,
	&gs_attribute_contexts_current.attr,
	&gs_attribute_events.attr,
	&gs_attribute_memory_refused.attr,
	&gs_attribute_controls_refused.attr,
	NULL,
};

/* clang-format on */

static gs_const_bin struct bin_attribute *gs_const_bin gs_tenant_bin_attrs[] = {
	&gs_tenant_procs,
	NULL,
};

static const struct attribute_group gs_tenant_group = {
	.attrs = gs_tenant_attrs,
	.bin_attrs = gs_tenant_bin_attrs,
};

static const struct attribute_group *gs_tenant_groups[] = {
	&gs_tenant_group,
	NULL,
};

static const struct sysfs_ops gs_tenant_ops = {
	.show = gs_tenant_show,
	.store = gs_tenant_store,
};

static void gs_tenant_release(struct kobject *kobj)
{
	kfree(gs_tenant_of(kobj));
	gs_kobject_died();
}

const struct kobj_type gs_tenant_ktype = {
	.release = gs_tenant_release,
	.sysfs_ops = &gs_tenant_ops,
	.default_groups = gs_tenant_groups,
};
