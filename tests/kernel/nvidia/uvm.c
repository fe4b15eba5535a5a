// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for nvidia-uvm.ko: a device file by which a program has memory of RM's mapped. Nothing
 * is mapped, but the memory is kept: until it is unmapped, or the file is released.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "device.h"
#include "standin_abi.h"
#include "uvm.h"

#define MAPPINGS_MAX 64

struct uvm_file {
	struct mutex lock; /* It protects `names`. */
	u32 names[MAPPINGS_MAX]; /* 0: free */
};

static char uvm_gpu; /* Its address stands for the GPU. */

static long uvm_map(struct uvm_file *ours, struct standin_uvm_map *call)
{
	struct uvm_memory_info info = {};
	unsigned int i;

	for (i = 0; i < MAPPINGS_MAX && ours->names[i]; i++)
		;
	if (i == MAPPINGS_MAX)
		return -ENOSPC;
	call->status = nvUvmInterfaceDupMemory(&uvm_gpu, call->client, call->memory,
					       &ours->names[i], &info);
	call->number = i;
	return 0;
}

static void uvm_unmap(struct uvm_file *ours, unsigned int number)
{
	if (ours->names[number])
		nvUvmInterfaceFreeDupedHandle(&uvm_gpu, ours->names[number]);
	ours->names[number] = 0;
}

static long uvm_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct uvm_file *ours = file->private_data;
	struct standin_uvm_map call;
	long ret = -EINVAL;

	if (copy_from_user(&call, (void __user *)arg, sizeof(call)))
		return -EFAULT;
	mutex_lock(&ours->lock);
	if (cmd == STANDIN_UVM_MAP) {
		ret = uvm_map(ours, &call);
	} else if (cmd == STANDIN_UVM_UNMAP && call.number < MAPPINGS_MAX) {
		uvm_unmap(ours, call.number);
		ret = 0;
	}
	mutex_unlock(&ours->lock);
	return ret ?: copy_to_user((void __user *)arg, &call, sizeof(call)) ? -EFAULT : 0;
}

static int uvm_open(struct inode *inode, struct file *file)
{
	struct uvm_file *ours = kzalloc(sizeof(*ours), GFP_KERNEL);

	if (!ours)
		return -ENOMEM;
	mutex_init(&ours->lock);
	file->private_data = ours;
	return 0;
}

static int uvm_release(struct inode *inode, struct file *file)
{
	struct uvm_file *ours = file->private_data;
	unsigned int i;

	for (i = 0; i < MAPPINGS_MAX; i++)
		uvm_unmap(ours, i);
	kfree(ours);
	return 0;
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open,
	.release = uvm_release,
	.unlocked_ioctl = uvm_ioctl,
};

STANDIN_DEVICE_MODULE("nvidia-uvm", "nvidia-uvm", uvm_fops);
