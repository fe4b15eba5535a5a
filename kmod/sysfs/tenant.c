// SPDX-License-Identifier: GPL-2.0
/*
 * The settings of a tenant, and what all attributes of its directory except procs share. A setting
 * is taken over whole or not at all. A program that polls the attribute, `generation` or the event
 * stream learns of it.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat/version.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"
#include "sysfs/tenant.h"

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

	if (!attribute->show)
		return -EACCES;
	mutex_lock(&gs_lock);
	view.figures = tenant->figures;
	mutex_unlock(&gs_lock);
	view.counter = &tenant->counter;
	return attribute->show(&view, buf);
}

/*
 * May the writer do everything? The kernel does not say who has opened the file. A program that
 * runs with another user's rights than its caller's may have been handed it by the caller, so its
 * rights do not count.
 */
static bool gs_writer_is_admin(void)
{
	return capable(CAP_SYS_ADMIN) && uid_eq(current_uid(), current_euid());
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

	if (attribute->act)
		return attribute->act(tenant, buf, len) ?: count;
	if (!attribute->parse && !attribute->store)
		return -EACCES;
	if (attribute->is_rule && !uid_eq(tenant->owner, GLOBAL_ROOT_UID) && !gs_writer_is_admin())
		return -EPERM;
	mutex_lock(&gs_lock);
	figures = tenant->figures;
	if (!tenant->is_linked)
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

GS_SHOW(weight, "%u", view->figures.settings.weight)
GS_SHOW(priority, "%s", gs_priority_name(view->figures.settings.priority))
GS_SHOW(slo_us, "%u", view->figures.settings.slo_us)
GS_SHOW(length_us, "%llu", view->figures.settings.length_us)
GS_SHOW(iterations, "%llu", view->figures.settings.iterations)
GS_SHOW(phase, "%s", gs_phase_name(view->figures.settings.phase))
GS_SHOW(gang, "%s", gs_gang_name(view->figures.settings.gang))
GS_SHOW(sm_min, "%u", view->figures.settings.sm_min)
GS_SHOW(sm_shown, "%s", gs_sm_shown_name(view->figures.settings.sm_shown))
GS_SHOW(match_cgroup, "%s", view->figures.match_cgroup)

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

static int gs_act_create(struct gs_tenant *tenant, const char *text, size_t len)
{
	return gs_tenant_change_below(tenant, text, len, true);
}

static int gs_act_remove(struct gs_tenant *tenant, const char *text, size_t len)
{
	return gs_tenant_change_below(tenant, text, len, false);
}

static ssize_t gs_show_freeze(const struct gs_tenant_view *view, char *buf)
{
	return sysfs_emit(buf, "%d\n", view->figures.is_frozen);
}

static int gs_store_freeze(struct gs_figures *figures, const char *text, size_t len)
{
	u32 is_frozen;
	int err = gs_parse_ranged(text, len, 0, 1, &is_frozen);

	if (!err)
		figures->is_frozen = is_frozen;
	return err;
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

/* clang-format off */
#define GS_PARSED(_name, _setting)                                                                 \
	GS_ATTRIBUTE(_name, 0644, .parse = gs_parse_##_name, .setting = GPUSHARE_SETTING_##_setting)

#define GS_SETTING(_key, _name, ...) static GS_PARSED(_key, _name);
GPUSHARE_SETTINGS(GS_SETTING)
static GS_STORED(contexts_max, CONTEXTS_MAX);
static GS_STORED(freeze, FREEZE);
#define GS_RULE(_name, _setting)                                                                   \
	GS_ATTRIBUTE(_name, 0644, .store = gs_store_##_name, .is_rule = true,                      \
		     .setting = GPUSHARE_SETTING_##_setting)
static GS_RULE(match_cgroup, MATCH_CGROUP);
static GS_RULE(match_uid, MATCH_UID);

static struct gs_tenant_attribute gs_attribute_create = {
	.attr = { .name = "create", .mode = 0200, GS_OF_EACH_TENANT },
	.act = gs_act_create,
};

static struct gs_tenant_attribute gs_attribute_remove = {
	.attr = { .name = "remove", .mode = 0200, GS_OF_EACH_TENANT },
	.act = gs_act_remove,
};

static struct attribute *gs_tenant_attrs[] = {
#define GS_LISTED(_key, ...) &gs_attribute_##_key.attr,
	GPUSHARE_SETTINGS(GS_LISTED)
	&gs_attribute_contexts_max.attr,
	&gs_attribute_create.attr,
	&gs_attribute_remove.attr,
	&gs_attribute_freeze.attr,
	&gs_attribute_match_cgroup.attr,
	&gs_attribute_match_uid.attr,
	&gs_attribute_gpu_time_us.attr,
	&gs_attribute_share_permille.attr,
	&gs_attribute_throttled_us.attr,
	&gs_attribute_freezes.attr,
	&gs_attribute_turns.attr,
	&gs_attribute_held_us.attr,
	&gs_attribute_memory_current.attr,
	&gs_attribute_memory_peak.attr,
	&gs_attribute_contexts_current.attr,
	&gs_attribute_events.attr,
	&gs_attribute_stat.attr,
	&gs_attribute_pressure.attr,
	&gs_attribute_gpu_max.attr,
	&gs_attribute_gpu_memory_current.attr,
	&gs_attribute_gpu_memory_max.attr,
	&gs_attribute_gpu_usage.attr,
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

/**
 * gs_tenant_has_file() - Is there a file of this name in the directory of each tenant?
 * @name: The name, terminated.
 *
 * Return: True if there is, so that no tenant below may be called like it.
 */
bool gs_tenant_has_file(const char *name)
{
	struct attribute *const *attr;

	for (attr = gs_tenant_attrs; *attr; attr++) {
		if (strcmp((*attr)->name, name) == 0)
			return true;
	}
	return strcmp(gs_tenant_procs.attr.name, name) == 0;
}

/* The files of a tenant that a user made are that user's. */
static void gs_tenant_ownership(gs_const_kobject struct kobject *kobj, kuid_t *uid, kgid_t *gid)
{
	*uid = container_of(kobj, struct gs_tenant, kobj)->owner;
}

static void gs_tenant_release(struct kobject *kobj)
{
	kfree(gs_tenant_of(kobj));
	gs_kobject_died();
}

const struct kobj_type gs_tenant_ktype = {
	.release = gs_tenant_release,
	.sysfs_ops = &gs_tenant_ops,
	.default_groups = gs_tenant_groups,
	.get_ownership = gs_tenant_ownership,
};
