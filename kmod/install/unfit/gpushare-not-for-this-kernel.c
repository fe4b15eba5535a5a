// SPDX-License-Identifier: GPL-2.0
/*
 * Nothing: DKMS builds this where gpushare.ko is not for the kernel, so that the kernel's package
 * is installed without an error. Nobody loads it.
 */
#include <linux/module.h>

MODULE_DESCRIPTION("stands where gpushare.ko is not for this kernel, and does nothing");
MODULE_LICENSE("GPL");
