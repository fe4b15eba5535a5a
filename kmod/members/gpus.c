// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/string.h>

#include "members/gpus.h"
#include "members/settings.h"
#include "news/lock.h"

static struct gs_gpu_names gs_gpu_names; /* UUIDs, empty where none is known; under gs_lock */

/**
 * gs_gpu_name() - Note the UUID of a GPU.
 * @gpu: RM's device instance, below GPUSHARE_MAX_GPUS.
 * @uuid: The UUID, terminated.
 */
void gs_gpu_name(u32 gpu, const char *uuid)
{
	lockdep_assert_held(&gs_lock);
	strscpy(gs_gpu_names.of[gpu], uuid, sizeof(gs_gpu_names.of[gpu]));
}

static void gs_gpu_default_name(u32 gpu, char *name)
{
	snprintf(name, GPUSHARE_UUID_BYTES, "gpu%u", gpu);
}

/**
 * gs_gpu_names_get() - Copy the names of all GPUs.
 * @names: Out: none is empty.
 *
 * It takes gs_lock.
 */
void gs_gpu_names_get(struct gs_gpu_names *names)
{
	u32 gpu;

	mutex_lock(&gs_lock);
	*names = gs_gpu_names;
	mutex_unlock(&gs_lock);
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		if (!names->of[gpu][0])
			gs_gpu_default_name(gpu, names->of[gpu]);
	}
}

/**
 * gs_gpu_of_name() - Find a GPU by its UUID, or by gpuN.
 * @text: The name, not terminated.
 * @len: Its length in bytes.
 *
 * Return: The device instance, or -ENODEV.
 */
int gs_gpu_of_name(const char *text, size_t len)
{
	char name[GPUSHARE_UUID_BYTES];
	u32 gpu;

	lockdep_assert_held(&gs_lock);
	for (gpu = 0; gpu < GPUSHARE_MAX_GPUS; gpu++) {
		gs_gpu_default_name(gpu, name);
		if (gs_text_is(text, len, name) ||
		    (gs_gpu_names.of[gpu][0] && gs_text_is(text, len, gs_gpu_names.of[gpu])))
			return gpu;
	}
	return -ENODEV;
}
