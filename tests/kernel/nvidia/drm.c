// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for nvidia-drm.ko: the functions by which it makes video memory for a program, or keeps
 * what the program has made, behind a device file of its own. Its ioctls 0, 1 and 2 call one of them
 * each, and return what the function returns.
 */
#include "device.h"

struct drm_device;
struct drm_file;

static atomic_t made = ATOMIC_INIT(0);
module_param_named(made, made.counter, int, 0444);
MODULE_PARM_DESC(made, "How often memory was made");

/* A function of the real module, under its name. */
#define MAKES_MEMORY(name, first, second, third)                                                   \
	int name(first, second, third);                                                            \
	noinline int name(first, second, third)                                                    \
	{                                                                                          \
		atomic_inc(&made);                                                                 \
		return 0;                                                                          \
	}
MAKES_MEMORY(nv_drm_gem_alloc_nvkms_memory_ioctl, struct drm_device *device, void *data,
	     struct drm_file *file)
MAKES_MEMORY(nv_drm_dumb_create, struct drm_file *file, struct drm_device *device, void *args)
MAKES_MEMORY(nv_drm_gem_import_nvkms_memory_ioctl, struct drm_device *device, void *data,
	     struct drm_file *file)

static long drm_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (_IOC_NR(cmd)) {
	case 0:
		return nv_drm_gem_alloc_nvkms_memory_ioctl(NULL, NULL, NULL);
	case 1:
		return nv_drm_dumb_create(NULL, NULL, NULL);
	case 2:
		return nv_drm_gem_import_nvkms_memory_ioctl(NULL, NULL, NULL);
	default:
		return -EINVAL;
	}
}

static const struct file_operations drm_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = drm_ioctl,
};

STANDIN_DEVICE_MODULE("nvidia-drm", "nvidia-gem", drm_fops);
