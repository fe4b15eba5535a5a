// SPDX-License-Identifier: GPL-2.0
/*
 * A live patch of the stand-in driver's ioctl, which answers every call with ENOTTY. It shows what
 * becomes of gpushare.ko beside another one who wants the same function.
 */
#include <linux/fs.h>
#include <linux/module.h>

#ifdef CONFIG_LIVEPATCH
#include <linux/livepatch.h>

static long patched_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return -ENOTTY;
}

static struct klp_func patched_functions[] = {
	{ .old_name = "nvidia_unlocked_ioctl", .new_func = patched_ioctl },
	{}
};

static struct klp_object patched_objects[] = {
	{ .name = "nvidia", .funcs = patched_functions },
	{}
};

static struct klp_patch patch = { .mod = THIS_MODULE, .objs = patched_objects };

static int __init patch_init(void)
{
	return klp_enable_patch(&patch);
}

MODULE_INFO(livepatch, "Y");
#else
static int __init patch_init(void)
{
	return -EOPNOTSUPP;
}
#endif

static void __exit patch_exit(void)
{
}

module_init(patch_init);
module_exit(patch_exit);
MODULE_DESCRIPTION("Patches the stand-in driver of gpushare's tests");
MODULE_LICENSE("GPL");
