// SPDX-License-Identifier: GPL-2.0
/*
 * The directories gpus/<n>/: what the agent says about each GPU. They exist while the agent holds
 * /dev/gpushare open. They are made and removed under gs_gpus_lock, which no attribute takes; what
 * the attributes show is under gs_lock.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "members/gpus.h"
#include "news/lock.h"
#include "sysfs/sysfs.h"

struct gs_gpu {
	struct kobject kobj;
	struct gpushare_gpu info;
};

static struct kobject *gs_gpus_dir;
static struct gs_gpu *gs_gpus[GPUSHARE_MAX_GPUS]; /* under gs_gpus_lock */
static DEFINE_MUTEX(gs_gpus_lock);

static struct gpushare_gpu gs_gpu_info(struct kobject *kobj)
{
	struct gpushare_gpu info;

	mutex_lock(&gs_lock);
	info = container_of(kobj, struct gs_gpu, kobj)->info;
	mutex_unlock(&gs_lock);
	return info;
}

#define GS_GPU_ATTRIBUTE(_name, _format, _value)                                                   \
	static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)  \
	{                                                                                          \
		return sysfs_emit(buf, _format "\n", _value);                                      \
	}                                                                                          \
	static struct kobj_attribute gs_##_name##_attribute = __ATTR_RO(_name)

GS_GPU_ATTRIBUTE(uuid, "%s", gs_gpu_info(kobj).uuid);
GS_GPU_ATTRIBUTE(memory_bytes, "%llu", gs_gpu_info(kobj).memory_bytes);
GS_GPU_ATTRIBUTE(sharing, "%s", gs_gpu_info(kobj).sharing);
GS_GPU_ATTRIBUTE(policy, "%s", gs_gpu_info(kobj).policy);

static ssize_t sm_count_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	u32 count = gs_gpu_info(kobj).sm_count;

	return count == GPUSHARE_UNKNOWN ? sysfs_emit(buf, "unknown\n") :
					   sysfs_emit(buf, "%u\n", count);
}

static struct kobj_attribute gs_sm_count_attribute = __ATTR_RO(sm_count);

static struct attribute *gs_gpu_attrs[] = {
	&gs_uuid_attribute.attr,    &gs_sm_count_attribute.attr, &gs_memory_bytes_attribute.attr,
	&gs_sharing_attribute.attr, &gs_policy_attribute.attr,   NULL,
};
ATTRIBUTE_GROUPS(gs_gpu);

static void gs_gpu_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct gs_gpu, kobj));
	gs_kobject_died();
}

static const struct kobj_type gs_gpu_ktype = {
	.release = gs_gpu_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = gs_gpu_groups,
};

/**
 * gs_sysfs_set_gpu() - Make or change the directory of a GPU.
 * @gpu: What it shows, which the caller has checked.
 *
 * Return: 0 or a negative errno.
 */
int gs_sysfs_set_gpu(const struct gpushare_gpu *gpu)
{
	struct gs_gpu *entry;
	int err = 0;

	mutex_lock(&gs_gpus_lock);
	entry = gs_gpus[gpu->index];
	mutex_lock(&gs_lock);
	gs_gpu_name(gpu->index, gpu->uuid);
	if (entry)
		entry->info = *gpu;
	mutex_unlock(&gs_lock);
	if (entry)
		goto unlock;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry) {
		err = -ENOMEM;
		goto unlock;
	}
	entry->info = *gpu;
	gs_kobject_born();
	err = kobject_init_and_add(&entry->kobj, &gs_gpu_ktype, gs_gpus_dir, "%u", gpu->index);
	if (err)
		kobject_put(&entry->kobj);
	else
		gs_gpus[gpu->index] = entry;
unlock:
	mutex_unlock(&gs_gpus_lock);
	return err;
}

/**
 * gs_sysfs_forget_gpus() - Remove all GPUs, for which no agent vouches any more.
 */
void gs_sysfs_forget_gpus(void)
{
	u32 i;

	mutex_lock(&gs_gpus_lock);
	for (i = 0; i < GPUSHARE_MAX_GPUS; i++) {
		if (!gs_gpus[i])
			continue;
		kobject_del(&gs_gpus[i]->kobj);
		kobject_put(&gs_gpus[i]->kobj);
		gs_gpus[i] = NULL;
	}
	mutex_unlock(&gs_gpus_lock);
}

/**
 * gs_sysfs_gpus_init() - Make gpus/.
 * @root: The directory /sys/kernel/gpushare.
 *
 * Return: 0 or -ENOMEM.
 */
int gs_sysfs_gpus_init(struct kobject *root)
{
	gs_gpus_dir = kobject_create_and_add("gpus", root);
	return gs_gpus_dir ? 0 : -ENOMEM;
}

/**
 * gs_sysfs_gpus_exit() - Remove gpus/.
 */
void gs_sysfs_gpus_exit(void)
{
	gs_sysfs_forget_gpus();
	kobject_put(gs_gpus_dir);
}
