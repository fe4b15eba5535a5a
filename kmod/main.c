// SPDX-License-Identifier: GPL-2.0
/*
 * gpushare.ko keeps quotas of NVIDIA GPUs in sysfs, and refuses at the driver's ioctl what no
 * program may do. README.md says how it works; ABI/sysfs-kernel-gpushare and uapi/gpushare.h say
 * what it offers.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "compat/version.h"
#include "dev/chardev.h"
#include "hook/hook.h"
#include "news/lock.h"
#include "state/object.h"
#include "sysfs/sysfs.h"

DEFINE_MUTEX(gs_lock); /* news/lock.h says what is under it. */

static int __init gs_init(void)
{
	int err;

	err = gs_objects_init();
	if (err)
		return err;
	err = gs_sysfs_init();
	if (err)
		goto exit_objects;
	err = gs_exits_init();
	if (err)
		goto exit_sysfs;
	err = gs_chardev_init();
	if (err)
		goto exit_exits;
	err = gs_hook_init();
	if (err)
		goto exit_chardev;
	return 0;

exit_chardev:
	gs_chardev_exit();
exit_exits:
	gs_exits_exit();
exit_sysfs:
	gs_sysfs_exit();
exit_objects:
	gs_objects_exit();
	return err;
}

/*
 * It ends from the outside in: calls of the driver, openers of the device, ends of processes, and
 * at last writers of sysfs, with what all of these have left.
 */
static void __exit gs_exit(void)
{
	gs_hook_exit();
	gs_chardev_exit();
	gs_exits_exit();
	gs_sysfs_exit();
	gs_objects_exit();
}

module_init(gs_init);
module_exit(gs_exit);

MODULE_DESCRIPTION("Shares NVIDIA GPUs among unmodified programs");
MODULE_VERSION(GS_VERSION);
MODULE_LICENSE("GPL");
