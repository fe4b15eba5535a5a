/* SPDX-License-Identifier: GPL-2.0 */
/* What each stand-in beside nvidia.ko is: a module that is one device file, which all may open. */
#ifndef GPUSHARE_STANDIN_DEVICE_H
#define GPUSHARE_STANDIN_DEVICE_H

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>

/* The module stands in for @_driver. Its file has the name @_file and the operations @_fops. */
#define STANDIN_DEVICE_MODULE(_driver, _file, _fops)                                               \
	static struct miscdevice standin_device = {                                                \
		.minor = MISC_DYNAMIC_MINOR,                                                       \
		.name = _file,                                                                     \
		.fops = &(_fops),                                                                  \
		.mode = 0666,                                                                      \
	};                                                                                         \
	module_misc_device(standin_device);                                                        \
	MODULE_DESCRIPTION("Stand-in for " _driver ", for gpushare's tests");                      \
	MODULE_LICENSE("GPL")

#endif /* GPUSHARE_STANDIN_DEVICE_H */
