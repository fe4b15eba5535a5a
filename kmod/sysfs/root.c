// SPDX-License-Identifier: GPL-2.0
/* The directory /sys/kernel/gpushare and the attributes directly in it. */
#include <linux/capability.h>
#include <linux/kobject.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/wait.h>

#include "compat/version.h"
#include "hook/hook.h"
#include "news/agent.h"
#include "news/announce.h"
#include "news/lock.h"
#include "sysfs/sysfs.h"

static struct kobject gs_root;
static char gs_policy[GPUSHARE_WORD_BYTES] = "none"; /* under gs_lock */
static atomic64_t gs_generation = ATOMIC64_INIT(0);
static u32 gs_instance; /* drawn when the module is loaded */

/*
 * The number of our kobjects whose release has not run. While there is one the module's text is
 * needed; a program that holds a file of the directory open may drop the last reference.
 */
static atomic_t gs_kobjects = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(gs_kobjects_gone);

/**
 * gs_kobject_born() - Count a kobject with a release function of ours, before it is initialized.
 */
void gs_kobject_born(void)
{
	atomic_inc(&gs_kobjects);
}

/**
 * gs_kobject_died() - Do the last thing in that release function.
 */
void gs_kobject_died(void)
{
	if (atomic_dec_and_test(&gs_kobjects))
		wake_up_all(&gs_kobjects_gone);
}

/**
 * gs_line_length() - Measure what was written to an attribute.
 * @buf: The text.
 * @count: Its length in bytes.
 *
 * Return: The length without the newline that echo adds.
 */
size_t gs_line_length(const char *buf, size_t count)
{
	return count > 0 && buf[count - 1] == '\n' ? count - 1 : count;
}

/* Wakes the programs that poll the attribute which shows what has changed. */
static void gs_root_announced(enum gs_news news)
{
	static const char *const attributes[] = {
		[GS_NEWS_AGENT] = "agent",
		[GS_NEWS_DRIVER] = "driver",
		[GS_NEWS_SETTINGS] = "generation",
	};

	if (news == GS_NEWS_SETTINGS)
		atomic64_inc(&gs_generation);
	sysfs_notify(&gs_root, NULL, attributes[news]);
}

/**
 * gs_sysfs_set_policy() - Set what `policy` shows.
 * @name: At most 15 characters; NULL for none.
 */
void gs_sysfs_set_policy(const char *name)
{
	mutex_lock(&gs_lock);
	strscpy(gs_policy, name ?: "none", sizeof(gs_policy));
	mutex_unlock(&gs_lock);
	sysfs_notify(&gs_root, NULL, "policy");
}

static ssize_t version_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, GS_VERSION "\n");
}

static ssize_t interface_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", GPUSHARE_UAPI_VERSION);
}

static ssize_t driver_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return gs_hook_describe(buf);
}

static ssize_t agent_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	pid_t pid = gs_agent_pid();

	return pid ? sysfs_emit(buf, "%d\n", pid) : sysfs_emit(buf, "none\n");
}

static ssize_t policy_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	char policy[GPUSHARE_WORD_BYTES];

	mutex_lock(&gs_lock);
	memcpy(policy, gs_policy, sizeof(policy));
	mutex_unlock(&gs_lock);
	return sysfs_emit(buf, "%s\n", policy);
}

static ssize_t generation_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", atomic64_read(&gs_generation));
}

static ssize_t instance_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", gs_instance);
}

static ssize_t drain_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", gs_hook_is_draining());
}

static ssize_t drain_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			   size_t count)
{
	bool is_draining;
	int err = kstrtobool(buf, &is_draining);

	if (err)
		return err;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	gs_hook_drain(is_draining);
	return count;
}

static ssize_t create_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			    size_t count)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return gs_tenant_create(buf, gs_line_length(buf, count)) ?: count;
}

static ssize_t remove_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			    size_t count)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return gs_tenant_remove(buf, gs_line_length(buf, count)) ?: count;
}

static struct kobj_attribute gs_version_attribute = __ATTR_RO(version);
static struct kobj_attribute gs_interface_attribute = __ATTR_RO(interface);
static struct kobj_attribute gs_driver_attribute = __ATTR_RO(driver);
static struct kobj_attribute gs_agent_attribute = __ATTR_RO(agent);
static struct kobj_attribute gs_policy_attribute = __ATTR_RO(policy);
static struct kobj_attribute gs_generation_attribute = __ATTR_RO(generation);
static struct kobj_attribute gs_instance_attribute = __ATTR_RO(instance);
static struct kobj_attribute gs_drain_attribute = __ATTR_RW(drain);
static struct kobj_attribute gs_create_attribute = __ATTR_WO(create);
static struct kobj_attribute gs_remove_attribute = __ATTR_WO(remove);

static struct attribute *gs_root_attrs[] = {
	&gs_version_attribute.attr,
	&gs_driver_attribute.attr,
	&gs_agent_attribute.attr,
	&gs_policy_attribute.attr,
	&gs_drain_attribute.attr,
	&gs_create_attribute.attr,
	&gs_generation_attribute.attr,
	&gs_remove_attribute.attr,
	&gs_instance_attribute.attr,
	&gs_interface_attribute.attr,
	NULL,
};
ATTRIBUTE_GROUPS(gs_root);

static void gs_root_release(struct kobject *kobj)
{
	gs_kobject_died();
}

static const struct kobj_type gs_root_ktype = {
	.release = gs_root_release,
	.sysfs_ops = &kobj_sysfs_ops,
};

/**
 * gs_sysfs_init() - Make the whole tree, with the default tenant.
 *
 * The attributes of the root come last: until then nothing can be written to `create`.
 *
 * Return: 0 or a negative errno.
 */
int gs_sysfs_init(void)
{
	int err;

	do {
		get_random_bytes(&gs_instance, sizeof(gs_instance));
	} while (!gs_instance);
	gs_announce_to(gs_root_announced);
	gs_kobject_born();
	err = kobject_init_and_add(&gs_root, &gs_root_ktype, kernel_kobj, "gpushare");
	if (err)
		goto put_root;
	err = gs_sysfs_gpus_init(&gs_root);
	if (err)
		goto put_root;
	err = gs_sysfs_tenants_init(&gs_root);
	if (err)
		goto exit_gpus;
	err = sysfs_create_groups(&gs_root, gs_root_groups);
	if (err)
		goto exit_tenants;
	return 0;

exit_tenants:
	gs_sysfs_tenants_exit();
exit_gpus:
	gs_sysfs_gpus_exit();
put_root:
	kobject_put(&gs_root);
	wait_event(gs_kobjects_gone, !atomic_read(&gs_kobjects));
	return err;
}

/**
 * gs_sysfs_exit() - Remove all of it, and wait until nothing of it is left.
 */
void gs_sysfs_exit(void)
{
	sysfs_remove_groups(&gs_root, gs_root_groups);
	gs_sysfs_tenants_exit();
	gs_sysfs_gpus_exit();
	kobject_put(&gs_root);
	wait_event(gs_kobjects_gone, !atomic_read(&gs_kobjects));
}
