// SPDX-License-Identifier: GPL-2.0
/*
 * The attributes that list a tenant's use and limits by GPU, in the form of cgroup v2's dmem: a
 * line for each GPU with its name and a number.
 */
#include <linux/slab.h>

#include "members/gpus.h"
#include "sysfs/tenant.h"

/* Shows a line for each GPU whose value is not @none. */
static ssize_t gs_show_gpus(const struct gs_tenant_view *view, char *buf,
			    u64 (*value_of)(const struct gs_tenant_view *view, u32 gpu), u64 none)
{
	struct gs_gpu_names *names = kmalloc(sizeof(*names), GFP_KERNEL);
	int len = 0;
	u64 value;
	u32 gpu;

	if (!names)
		return -ENOMEM;
	gs_gpu_names_get(names);
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		value = value_of(view, gpu);
		if (value != none)
			len += sysfs_emit_at(buf, len, "%s %llu\n", names->of[gpu], value);
	}
	kfree(names);
	return len;
}

static u64 gs_gpu_memory(const struct gs_tenant_view *view, u32 gpu)
{
	return atomic64_read(&view->counter->memory[gpu]);
}

static u64 gs_gpu_limit(const struct gs_tenant_view *view, u32 gpu)
{
	return view->figures.gpu_memory_max[gpu];
}

static u64 gs_gpu_time(const struct gs_tenant_view *view, u32 gpu)
{
	return view->figures.published.by_gpu_us[gpu];
}

static ssize_t gs_show_gpu_memory_current(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_gpu_memory, 0);
}

static ssize_t gs_show_gpu_memory_max(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_gpu_limit, GS_MEMORY_NONE);
}

static ssize_t gs_show_gpu_usage(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_gpu_time, 0);
}

/* It takes "GPU BYTES" or "GPU max". */
static int gs_store_gpu_memory_max(struct gs_figures *figures, const char *text, size_t len)
{
	const char *blank = memchr(text, ' ', len);
	size_t first = blank ? (size_t)(blank - text) : len;
	struct gs_settings scratch = figures->settings;
	int gpu, err;

	if (!blank)
		return -EINVAL;
	err = gs_parse_memory_max(&scratch, blank + 1, len - first - 1);
	if (err)
		return err;
	gpu = gs_gpu_of_name(text, first);
	if (gpu < 0)
		return gpu;
	figures->gpu_memory_max[gpu] = scratch.memory_max;
	return 0;
}

GS_READ_ONLY(gpu_memory_current);
GS_STORED(gpu_memory_max, GPU_MEMORY_MAX);
GS_READ_ONLY(gpu_usage);
