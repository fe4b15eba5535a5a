// SPDX-License-Identifier: GPL-2.0
/*
 * Memory in DMA buffers. As in the real driver (nv-dmabuf.c) the ioctl does not go by rm_ioctl, RM
 * takes a name for each object, of whichever client the program names, and the buffer is a file
 * that keeps the names until it is released. Nothing can be mapped by it.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>

#include "standin.h"

#define OWN_CLIENT 0xc1e00001u /* RM's own */

struct sn_dma_buf {
	struct mutex lock;
	u32 total;
	u32 names[DMA_BUF_EXPORT_MAX]; /* by place; 0: there is none yet */
};

/* These two have the real driver's names and arguments, and are built without ftrace's entry. */
u32 rm_dma_buf_dup_mem_handle(void *stack, void *gpu, u32 client, u32 own_client, u32 device,
			      u32 subdevice, void *instance, u32 memory, u64 offset, u64 bytes,
			      u32 *name, void **info);
noinline notrace u32 rm_dma_buf_dup_mem_handle(void *stack, void *gpu, u32 client, u32 own_client,
					       u32 device, u32 subdevice, void *instance,
					       u32 memory, u64 offset, u64 bytes, u32 *name,
					       void **info)
{
	struct sn_memory *named;
	u32 status;

	mutex_lock(&sn_lock);
	status = sn_name_memory(client, memory, name, &named);
	if (!status && (offset > named->bytes || bytes > named->bytes - offset)) {
		sn_name_drop(*name);
		status = GS_NV_ERR_INVALID_ARGUMENT;
	}
	mutex_unlock(&sn_lock);
	return status;
}

void rm_dma_buf_undup_mem_handle(void *stack, void *gpu, u32 client, u32 name);
noinline notrace void rm_dma_buf_undup_mem_handle(void *stack, void *gpu, u32 client, u32 name)
{
	mutex_lock(&sn_lock);
	sn_name_drop(name);
	mutex_unlock(&sn_lock);
}

static void drop(struct sn_dma_buf *buffer, u32 first, u32 count)
{
	u32 i;

	for (i = first; i < first + count; i++) {
		if (buffer->names[i])
			rm_dma_buf_undup_mem_handle(NULL, NULL, OWN_CLIENT, buffer->names[i]);
		buffer->names[i] = 0;
	}
}

static u32 fill(struct sn_dma_buf *buffer, const struct dma_buf_export *arg)
{
	u32 i, status, name = 0;
	void *info;

	if (arg->count > buffer->total || arg->index > buffer->total - arg->count)
		return GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < arg->count; i++) {
		status = buffer->names[arg->index + i] ?
				 GS_NV_ERR_INVALID_STATE :
				 rm_dma_buf_dup_mem_handle(NULL, NULL, arg->client, OWN_CLIENT, 1, 2,
							   NULL, arg->handles[i], arg->offsets[i],
							   arg->sizes[i], &name, &info);
		if (status) {
			drop(buffer, arg->index, i);
			return status;
		}
		buffer->names[arg->index + i] = name;
	}
	return GS_NV_OK;
}

static int nv_dma_buf_release(struct inode *inode, struct file *file)
{
	struct sn_dma_buf *buffer = file->private_data;

	drop(buffer, 0, buffer->total);
	kfree(buffer);
	return 0;
}

static const struct file_operations dma_buf_fops = {
	.owner = THIS_MODULE,
	.release = nv_dma_buf_release,
};

static u32 create(struct dma_buf_export *arg)
{
	struct sn_dma_buf *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	u32 status;
	int fd;

	if (!buffer)
		return GS_NV_ERR_NO_MEMORY;
	mutex_init(&buffer->lock);
	buffer->total = arg->total;
	status = fill(buffer, arg);
	if (status)
		goto free;
	fd = anon_inode_getfd("[nv_dmabuf]", &dma_buf_fops, buffer, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		status = GS_NV_ERR_INVALID_STATE;
		drop(buffer, 0, buffer->total);
		goto free;
	}
	arg->fd = fd;
	return GS_NV_OK;
free:
	kfree(buffer);
	return status;
}

static u32 add(const struct dma_buf_export *arg)
{
	struct file *file = fget(arg->fd);
	struct sn_dma_buf *buffer;
	u32 status = GS_NV_ERR_INVALID_ARGUMENT;

	if (!file)
		return status;
	if (file->f_op == &dma_buf_fops) {
		buffer = file->private_data;
		mutex_lock(&buffer->lock);
		status = fill(buffer, arg);
		mutex_unlock(&buffer->lock);
	}
	fput(file);
	return status;
}

int sn_export_dma_buf(struct sn_file *file, void *arg)
{
	struct dma_buf_export *call = arg;

	if (!call->bytes || !call->count || call->total > DMA_BUF_EXPORT_MAX ||
	    call->count > call->total)
		call->status = GS_NV_ERR_INVALID_ARGUMENT;
	else
		call->status = call->fd == -1 ? create(call) : add(call);
	return 0;
}
