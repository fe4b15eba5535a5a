/* SPDX-License-Identifier: Apache-2.0
 *
 * What the map of lineage.bpf.c says of a process: the founder of its line.
 */
#ifndef GPUSHARE_BPF_FOUNDER_H
#define GPUSHARE_BPF_FOUNDER_H

#include <linux/types.h>

struct gs_founder {
  __u64 start_ticks; /* field 22 of its /proc/PID/stat */
  __u32 pid;         /* in the agent's pid namespace */
  __u32 pad;
};

#endif /* GPUSHARE_BPF_FOUNDER_H */
