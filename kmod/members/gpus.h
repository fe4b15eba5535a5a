/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The names by which attributes of tenants list GPUs: the UUID, once an agent has told it, and
 * until then gpuN by RM's device instance N. A name stays when the agent goes.
 */
#ifndef GPUSHARE_GPUS_H
#define GPUSHARE_GPUS_H

#include <linux/types.h>

#include "uapi/gpushare.h"

/* A table of all names, to be read without a lock. */
struct gs_gpu_names {
	char of[GPUSHARE_MAX_GPUS][GPUSHARE_UUID_BYTES];
};

void gs_gpu_name(u32 gpu, const char *uuid);
void gs_gpu_names_get(struct gs_gpu_names *names);
int gs_gpu_of_name(const char *text, size_t len);

#endif /* GPUSHARE_GPUS_H */
