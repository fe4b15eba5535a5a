/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which classes of RM objects the module remembers. This header is pure, and tests/kmod also
 * compile it in user space.
 */
#ifndef GPUSHARE_RM_CLASSES_H
#define GPUSHARE_RM_CLASSES_H

#include <linux/types.h>
#ifndef __KERNEL__
#include <stdbool.h>
#endif

#include "rm_abi.h"

static inline bool rm_is_root_class(__u32 class_id)
{
	return class_id == RM_CLASS_ROOT || class_id == RM_CLASS_ROOT_NON_PRIV ||
	       class_id == RM_CLASS_ROOT_CLIENT;
}

/* A channel class has four hexadecimal digits and ends in 6F: 0xA06F, 0xC86F, 0xCA6F. */
static inline bool rm_is_channel_class(__u32 class_id)
{
	return class_id > 0xFF && class_id <= 0xFFFF &&
	       (class_id & 0xFF) == RM_CHANNEL_CLASS_LOW_BYTE;
}

/* The bits 3 to 7 of a class, as one bit of a word. */
#define RM_CLASS_BIT(class_id) (1u << ((class_id) >> 3 & 31))
#define RM_TRACKED_CLASS_BITS                                                                      \
	(RM_CLASS_BIT(RM_CLASS_MEMORY_LOCAL_USER) | RM_CLASS_BIT(RM_CHANNEL_CLASS_LOW_BYTE) |      \
	 RM_CLASS_BIT(RM_CLASS_ROOT) | RM_CLASS_BIT(RM_CLASS_ROOT_NON_PRIV) |                      \
	 RM_CLASS_BIT(RM_CLASS_ROOT_CLIENT) | RM_CLASS_BIT(RM_CLASS_DEVICE) |                      \
	 RM_CLASS_BIT(RM_CLASS_SUBDEVICE) | RM_CLASS_BIT(RM_CLASS_GROUP))

/*
 * Is an object of this class remembered? These are the objects that events are about, and those
 * that can be above them. Of memory it is only the GPU's, which comes first because it is the most
 * frequent. One look at five bits tells most of the other classes apart.
 */
static inline bool rm_is_tracked_class(__u32 class_id)
{
	if (class_id == RM_CLASS_MEMORY_LOCAL_USER)
		return true;
	if (!(RM_TRACKED_CLASS_BITS >> (class_id >> 3 & 31) & 1))
		return false;
	return rm_is_channel_class(class_id) || rm_is_root_class(class_id) ||
	       class_id == RM_CLASS_DEVICE || class_id == RM_CLASS_SUBDEVICE ||
	       class_id == RM_CLASS_GROUP;
}

#endif /* GPUSHARE_RM_CLASSES_H */
