/* SPDX-License-Identifier: GPL-2.0
 *
 * Process numbers as the agent sees them, for the eBPF programs.
 */
#ifndef GPUSHARE_BPF_PID_NAMESPACE_H
#define GPUSHARE_BPF_PID_NAMESPACE_H

#include "intercept/bpf/kernel_types.bpf.h"

#define MAX_PID_LEVELS 33 /* MAX_PID_NS_LEVEL + 1 */

/* Set before load: inode of the pid namespace that pids are given in. */
const volatile __u32 observer_pid_ns;

/* Returns the number of @pid in the observer's namespace, 0 if it is not visible there. */
static __always_inline __u32 observed_nr(struct pid *pid)
{
	__u32 level = BPF_CORE_READ(pid, level);
	__u32 i;

	for (i = 0; i < MAX_PID_LEVELS && i <= level; i++) {
		struct upid *number = &pid->numbers[i];

		if (BPF_CORE_READ(number, ns, ns.inum) == observer_pid_ns)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

#endif /* GPUSHARE_BPF_PID_NAMESPACE_H */
