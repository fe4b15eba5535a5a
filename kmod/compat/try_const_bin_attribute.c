// SPDX-License-Identifier: GPL-2.0
/* Functions for a binary attribute get it as const (6.16). */
#include <linux/sysfs.h>

static ssize_t gs_read(struct file *file, struct kobject *kobj, const struct bin_attribute *attr,
		       char *buf, loff_t at, size_t count)
{
	return 0;
}

extern struct bin_attribute gs_try;
struct bin_attribute gs_try = { .read = gs_read };
