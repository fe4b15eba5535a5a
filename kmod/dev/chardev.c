// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/gpushare, by which the agent speaks to the module. It has one opener, which needs
 * CAP_SYS_ADMIN. Everything that is done through it ends with its last descriptor, except what the
 * agent published of tenants. uapi/gpushare.h is the contract.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "dev/chardev.h"
#include "news/agent.h"
#include "members/names.h"
#include "state/report.h"
#include "news/stream.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"

#define GS_PUBLISH_CHUNK 32 /* the number of usages that are copied at a time */

static atomic_t gs_openers = ATOMIC_INIT(0);

static int gs_open(struct inode *inode, struct file *file)
{
	struct gs_stream *stream;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (atomic_cmpxchg(&gs_openers, 0, 1))
		return -EBUSY;
	stream = gs_stream_open();
	if (IS_ERR(stream)) {
		atomic_set(&gs_openers, 0);
		return PTR_ERR(stream);
	}
	file->private_data = stream;
	return stream_open(inode, file);
}

static int gs_release(struct inode *inode, struct file *file)
{
	gs_agent_forget();
	gs_sysfs_set_policy(NULL);
	gs_sysfs_forget_gpus();
	gs_stream_close(file->private_data);
	atomic_set(&gs_openers, 0);
	return 0;
}

static __poll_t gs_poll(struct file *file, poll_table *wait)
{
	return gs_stream_poll(file->private_data, file, wait);
}

static int gs_mmap(struct file *file, struct vm_area_struct *vma)
{
	return gs_stream_mmap(file->private_data, vma);
}

/* The argument of an ioctl, as the caller's memory held it. */
union gs_request {
	struct gpushare_query query;
	struct gpushare_register agent;
	struct gpushare_replay replay;
	struct gpushare_publish publish;
	struct gpushare_gpu gpu;
	struct gpushare_policy policy;
};

static long gs_ioc_query(union gs_request *request, void __user *arg)
{
	if (request->query.flags)
		return -EINVAL;
	gs_stream_query(&request->query);
	return copy_to_user(arg, &request->query, sizeof(request->query)) ? -EFAULT : 0;
}

static long gs_ioc_register(union gs_request *request, void __user *arg)
{
	if (request->agent.flags || request->agent.reserved)
		return -EINVAL;
	gs_agent_register();
	return 0;
}

static long gs_ioc_replay(union gs_request *request, void __user *arg)
{
	if (request->replay.flags || request->replay.reserved)
		return -EINVAL;
	mutex_lock(&gs_lock);
	gs_replay();
	mutex_unlock(&gs_lock);
	return 0;
}

/* Takes over what was published. A GPU of which nothing is said keeps what it had. */
static void gs_usage_take(struct gpushare_usage *known, const struct gpushare_usage *told)
{
	u64 before[GPUSHARE_MAX_GPUS];
	u32 gpu;

	memcpy(before, known->by_gpu_us, sizeof(before));
	*known = *told;
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		if (!known->by_gpu_us[gpu])
			known->by_gpu_us[gpu] = before[gpu];
	}
}

static void gs_publish(struct gpushare_usage *usage)
{
	struct gs_tenant *tenant = NULL;
	bool is_event;

	if (strnlen(usage->tenant, sizeof(usage->tenant)) < sizeof(usage->tenant))
		tenant = gs_tenant_find(usage->tenant);
	usage->result = tenant ? 0 : -ENOENT;
	if (!tenant)
		return;
	is_event = usage->freezes != tenant->figures.published.freezes;
	gs_usage_take(&tenant->figures.published, usage);
	if (is_event)
		gs_tenant_had_event(tenant);
}

static long gs_publish_chunk(struct gpushare_usage *usages, u8 __user *from, u32 count)
{
	u32 i;

	if (copy_from_user(usages, from, count * sizeof(*usages)))
		return -EFAULT;
	mutex_lock(&gs_lock);
	for (i = 0; i < count; i++)
		gs_publish(&usages[i]);
	mutex_unlock(&gs_lock);
	return copy_to_user(from, usages, count * sizeof(*usages)) ? -EFAULT : 0;
}

static long gs_ioc_publish(union gs_request *request, void __user *arg)
{
	const struct gpushare_publish *publish = &request->publish;
	u8 __user *from = u64_to_user_ptr(publish->usages);
	struct gpushare_usage *usages;
	u32 done, count;
	long err = 0;

	if (publish->flags || publish->reserved || publish->usage_bytes != sizeof(*usages) ||
	    publish->count > GPUSHARE_PUBLISH_MAX)
		return -EINVAL;
	usages = kmalloc_array(GS_PUBLISH_CHUNK, sizeof(*usages), GFP_KERNEL);
	if (!usages)
		return -ENOMEM;
	for (done = 0; done < publish->count && !err; done += count) {
		count = min_t(u32, publish->count - done, GS_PUBLISH_CHUNK);
		err = gs_publish_chunk(usages, from + done * sizeof(*usages), count);
	}
	kfree(usages);
	return err;
}

/* True if @text ends within @bytes and holds only what a terminal can show. */
static bool gs_text_is_printable(const char *text, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes && text[i]; i++) {
		if (text[i] < ' ' || text[i] > '~')
			return false;
	}
	return i < bytes;
}

static long gs_ioc_set_gpu(union gs_request *request, void __user *arg)
{
	const struct gpushare_gpu *gpu = &request->gpu;

	if (gpu->flags || gpu->reserved || gpu->index >= GPUSHARE_MAX_GPUS ||
	    !gs_text_is_printable(gpu->uuid, sizeof(gpu->uuid)) ||
	    !gs_text_is_printable(gpu->sharing, sizeof(gpu->sharing)) ||
	    !gs_text_is_printable(gpu->policy, sizeof(gpu->policy)))
		return -EINVAL;
	return gs_sysfs_set_gpu(gpu);
}

static long gs_ioc_set_policy(union gs_request *request, void __user *arg)
{
	const struct gpushare_policy *policy = &request->policy;
	size_t len = strnlen(policy->name, sizeof(policy->name));

	if (policy->flags || policy->reserved || len == sizeof(policy->name) ||
	    !gs_name_is_valid(policy->name, len))
		return -EINVAL;
	gs_sysfs_set_policy(policy->name);
	return 0;
}

static const struct {
	unsigned int cmd;
	long (*answer)(union gs_request *request, void __user *arg);
} gs_requests[] = {
	{ GPUSHARE_IOC_QUERY, gs_ioc_query },     { GPUSHARE_IOC_REGISTER, gs_ioc_register },
	{ GPUSHARE_IOC_REPLAY, gs_ioc_replay },   { GPUSHARE_IOC_PUBLISH, gs_ioc_publish },
	{ GPUSHARE_IOC_SET_GPU, gs_ioc_set_gpu }, { GPUSHARE_IOC_SET_POLICY, gs_ioc_set_policy },
};

static long gs_ioctl(struct file *file, unsigned int cmd, unsigned long number)
{
	void __user *arg = (void __user *)number;
	union gs_request request;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gs_requests); i++) {
		if (gs_requests[i].cmd != cmd)
			continue;
		if (copy_from_user(&request, arg, _IOC_SIZE(cmd)))
			return -EFAULT;
		return gs_requests[i].answer(&request, arg);
	}
	return -ENOTTY;
}

static const struct file_operations gs_operations = {
	.owner = THIS_MODULE,
	.open = gs_open,
	.release = gs_release,
	.poll = gs_poll,
	.mmap = gs_mmap,
	.unlocked_ioctl = gs_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice gs_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gpushare",
	.fops = &gs_operations,
	.mode = 0600,
};

/**
 * gs_chardev_init() - Make the device.
 *
 * Return: 0 or a negative errno.
 */
int gs_chardev_init(void)
{
	return misc_register(&gs_device);
}

/**
 * gs_chardev_exit() - Remove the device, which no program has open.
 */
void gs_chardev_exit(void)
{
	misc_deregister(&gs_device);
}
