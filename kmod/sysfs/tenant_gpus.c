// SPDX-License-Identifier: GPL-2.0
/*
 * The attributes that list a tenant's use and limits by GPU, in the form of cgroup v2's dmem: a
 * line for each GPU with its name and a number.
 */
#include <linux/slab.h>

#include "members/gpus.h"
#include "sysfs/tenant.h"

#define GS_GPU_TEXT_BYTES 24

/* Shows a line for each GPU of which @text_of writes something. */
static ssize_t gs_show_gpus(const struct gs_tenant_view *view, char *buf,
			    int (*text_of)(const struct gs_tenant_view *view, u32 gpu, char *text))
{
	struct gs_gpu_names *names = kmalloc(sizeof(*names), GFP_KERNEL);
	char text[GS_GPU_TEXT_BYTES];
	int len = 0;
	u32 gpu;

	if (!names)
		return -ENOMEM;
	gs_gpu_names_get(names);
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		if (text_of(view, gpu, text) > 0)
			len += sysfs_emit_at(buf, len, "%s %s\n", names->of[gpu], text);
	}
	kfree(names);
	return len;
}

static int gs_number_unless(u64 none, u64 value, char *text)
{
	return value == none ? 0 : scnprintf(text, GS_GPU_TEXT_BYTES, "%llu", value);
}

static int gs_text_of_memory(const struct gs_tenant_view *view, u32 gpu, char *text)
{
	return gs_number_unless(0, atomic64_read(&view->counter->memory[gpu]), text);
}

static int gs_text_of_limit(const struct gs_tenant_view *view, u32 gpu, char *text)
{
	return gs_number_unless(GS_MEMORY_NONE, view->figures.gpu_memory_max[gpu], text);
}

static int gs_text_of_cap(const struct gs_tenant_view *view, u32 gpu, char *text)
{
	const struct gs_cap *cap = &view->figures.gpu_max[gpu];

	if (cap->quota_us == GS_QUOTA_NONE)
		return 0;
	return scnprintf(text, GS_GPU_TEXT_BYTES, "%u %u", cap->quota_us, cap->period_us);
}

static int gs_text_of_time(const struct gs_tenant_view *view, u32 gpu, char *text)
{
	return gs_number_unless(0, view->figures.published.by_gpu_us[gpu], text);
}

static ssize_t gs_show_gpu_memory_current(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_text_of_memory);
}

static ssize_t gs_show_gpu_memory_max(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_text_of_limit);
}

static ssize_t gs_show_gpu_max(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_text_of_cap);
}

static ssize_t gs_show_gpu_usage(const struct gs_tenant_view *view, char *buf)
{
	return gs_show_gpus(view, buf, gs_text_of_time);
}

/* What is written for one GPU: its name, a blank, and a value. */
struct gs_gpu_line {
	const char *value; /* not terminated */
	size_t value_len;
	int gpu; /* or a negative error: a value that is none is said first */
};

static int gs_split_gpu_line(const char *text, size_t len, struct gs_gpu_line *line)
{
	const char *blank = memchr(text, ' ', len);

	if (!blank)
		return -EINVAL;
	line->value = blank + 1;
	line->value_len = len - (size_t)(line->value - text);
	line->gpu = gs_gpu_of_name(text, (size_t)(blank - text));
	return 0;
}

/* It takes "GPU BYTES" or "GPU max". */
static int gs_store_gpu_memory_max(struct gs_figures *figures, const char *text, size_t len)
{
	struct gs_settings scratch = figures->settings;
	struct gs_gpu_line line;
	int err = gs_split_gpu_line(text, len, &line);

	if (!err)
		err = gs_parse_memory_max(&scratch, line.value, line.value_len);
	if (err)
		return err;
	if (line.gpu < 0)
		return line.gpu;
	figures->gpu_memory_max[line.gpu] = scratch.memory_max;
	return 0;
}

/* It takes "GPU QUOTA PERIOD", "GPU QUOTA" or "GPU max", as `max` does behind the GPU. */
static int gs_store_gpu_max(struct gs_figures *figures, const char *text, size_t len)
{
	struct gs_settings scratch = figures->settings;
	struct gs_gpu_line line;
	int err = gs_split_gpu_line(text, len, &line);

	if (err)
		return err;
	scratch.period_us =
		line.gpu < 0 ? GPUSHARE_PERIOD_US_DEFAULT : figures->gpu_max[line.gpu].period_us;
	err = gs_parse_max(&scratch, line.value, line.value_len);
	if (err)
		return err;
	if (line.gpu < 0)
		return line.gpu;
	figures->gpu_max[line.gpu].quota_us = scratch.quota_us;
	figures->gpu_max[line.gpu].period_us = scratch.period_us;
	return 0;
}

GS_READ_ONLY(gpu_memory_current);
GS_STORED(gpu_max, GPU_MAX);
GS_STORED(gpu_memory_max, GPU_MEMORY_MAX);
GS_READ_ONLY(gpu_usage);
