// SPDX-License-Identifier: GPL-2.0
/* Direct calls are registered with the ops alone (6.4). */
#include <linux/ftrace.h>

int gs_try(struct ftrace_ops *ops);
int gs_try(struct ftrace_ops *ops)
{
	int err = register_ftrace_direct(ops, 0);

	return err ?: unregister_ftrace_direct(ops, 0, false);
}
