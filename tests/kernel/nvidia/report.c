// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/driver/nvidia/version, as the real driver has it, and /proc/nvidia-standin, which tells
 * tests the truth. A line is a kind and name=value words:
 *
 *   driver calls=1520
 *   gpu minor=0 instance=0 memory=1073741824 used=67108864 now_us=81000000
 *   group gpu=0 pid=91 client=c1d00001 handle=5c000003 engine=1 slice_us=2048 scheduled=1
 *         resident=1 ran_us=1048                                   (one line)
 *   channel gpu=0 pid=91 client=c1d00001 group=5c000003 handle=5c000004 freezes=0 busy=1
 */
#include <linux/math64.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "standin.h"

#define NAME "nvidia-standin"

static void report_object(struct sn_object *object, void *data)
{
	const struct sn_group *group = object->group;
	const struct sn_channel *channel = object->channel;
	struct seq_file *out = data;

	if (object->class_id == GS_CLASS_CHANNEL_GROUP)
		seq_printf(out,
			   "group gpu=%u pid=%d client=%x handle=%x engine=%u slice_us=%llu scheduled=%d resident=%d ran_us=%llu\n",
			   object->gpu->minor, object->client->pid, object->client->handle,
			   object->handle, group->engine, group->slice_us, group->is_scheduled,
			   object->gpu->runlist.resident == group, div_u64(group->ran_ns, 1000));
	else if (object->class_id > 0xFF &&
		 (object->class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE)
		seq_printf(out,
			   "channel gpu=%u pid=%d client=%x group=%x handle=%x freezes=%u busy=%d\n",
			   object->gpu->minor, object->client->pid, object->client->handle,
			   object->parent, object->handle, channel->freezes, channel->is_busy);
}

static int report_show(struct seq_file *out, void *unused)
{
	unsigned int i;

	mutex_lock(&sn_lock);
	seq_printf(out, "driver calls=%llu\n", sn_calls);
	for (i = 0; i < sn_gpu_count; i++) {
		sn_runlist_advance(&sn_gpus[i]);
		seq_printf(out, "gpu minor=%u instance=%u memory=%llu used=%llu now_us=%llu\n",
			   sn_gpus[i].minor, sn_gpus[i].instance, sn_memory_bytes(),
			   sn_gpus[i].memory_used,
			   div_u64(sn_gpus[i].runlist.at, 1000));
	}
	sn_for_each_object(report_object, out);
	mutex_unlock(&sn_lock);
	return 0;
}

static int version_show(struct seq_file *out, void *unused)
{
	seq_printf(out, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Stand-in\n",
		   sn_version);
	return 0;
}

int sn_report_init(void)
{
	struct proc_dir_entry *folder = proc_mkdir("driver/nvidia", NULL);

	if (folder && proc_create_single("version", 0444, folder, version_show) &&
	    proc_create_single(NAME, 0444, NULL, report_show))
		return 0;
	sn_report_exit();
	return -ENOMEM;
}

void sn_report_exit(void)
{
	remove_proc_subtree("driver/nvidia", NULL);
	remove_proc_subtree(NAME, NULL);
}
