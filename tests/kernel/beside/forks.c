// SPDX-License-Identifier: GPL-2.0
/*
 * Holds the forks of rm_client at the instant when others can see the child already, and nobody has
 * been told of it yet. No driver does so: the instant is short, and this makes it long.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>

#define MOST_MS 10000 /* less than what the kernel takes for a lockup */

static bool holds_forks;
module_param(holds_forks, bool, 0644);
MODULE_PARM_DESC(holds_forks, "Every fork of rm_client stands still, for 10 s at most (0)");

static struct tracepoint *point;

static void on_new_task(void *data, struct task_struct *child, unsigned long flags)
{
	unsigned int ms;

	if (flags & CLONE_THREAD || strcmp(current->comm, "rm_client") != 0)
		return;
	for (ms = 0; READ_ONCE(holds_forks) && ms < MOST_MS; ms++)
		mdelay(1);
}

static void take_point(struct tracepoint *one, void *data)
{
	if (strcmp(one->name, "task_newtask") == 0)
		point = one;
}

static int __init forks_init(void)
{
	for_each_kernel_tracepoint(take_point, NULL);
	return point ? tracepoint_probe_register(point, on_new_task, NULL) : -ENOENT;
}

static void __exit forks_exit(void)
{
	tracepoint_probe_unregister(point, on_new_task, NULL);
	tracepoint_synchronize_unregister();
}

module_init(forks_init);
module_exit(forks_exit);
MODULE_DESCRIPTION("Makes the forks of rm_client slow, for gpushare's tests");
MODULE_LICENSE("GPL");
