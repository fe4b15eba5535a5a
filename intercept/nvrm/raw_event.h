/* SPDX-License-Identifier: Apache-2.0
 *
 * The records that the eBPF probe (bpf/driver_probe.bpf.c) writes into its ring buffer and that
 * nvrm/decode reads: which process made a call of interest to the NVIDIA driver, and the bytes of
 * the call's argument after the driver had answered. Fixed-width members, no pointers and no
 * implicit padding; both sides come from one build, so there is no version. `arg` and `params` are
 * copies of the caller's memory and may hold anything.
 */
#ifndef GPUSHARE_NVRM_RAW_EVENT_H
#define GPUSHARE_NVRM_RAW_EVENT_H

#include "intercept/nvrm/abi.h"

enum gs_raw_kind {
  GS_RAW_IOCTL = 1,  /* the whole gs_raw_event */
  GS_RAW_EXEC = 2,   /* only its head: a process that used the driver made an exec */
  GS_RAW_EXIT = 3,   /* only its head: the last thread of such a process is ending */
  GS_RAW_UNREAD = 4, /* only its head: a call of the process could not be read */
  GS_RAW_SWITCH = 5, /* the whole gs_raw_switch: the process froze or thawed channels */
};

#define GS_RAW_COMM_BYTES 16
#define GS_RAW_ARG_BYTES 96    /* the longest prefix that is decoded: gs_nvos32_head */
#define GS_RAW_PARAMS_BYTES 72 /* gs_memory_params up to and including `size` */

struct gs_raw_head {
  gs_u64 time_ns;           /* CLOCK_MONOTONIC, after the driver answered */
  gs_u64 start_boottime_ns; /* start of the process; / 10^7 is field 22 of /proc/PID/stat */
  gs_u64 cgroup_id;         /* cgroup v2 */
  gs_u32 kind;              /* enum gs_raw_kind */
  gs_u32 pid, tid;          /* process and thread, in the observer's pid namespace */
  gs_u32 ns_pid;            /* process, in its own innermost pid namespace */
  gs_u32 uid;
  gs_u32 status;                /* of GS_RAW_EXIT, as wait(2) gives it; otherwise 0 */
  char comm[GS_RAW_COMM_BYTES]; /* of the process; not always terminated */
};

struct gs_raw_event {
  struct gs_raw_head head;
  gs_s32 fd;           /* the caller's descriptor */
  gs_u32 nr;           /* GS_NV_ESC_*; for an XFER the command inside it */
  gs_u32 arg_size;     /* as the command states it; `arg` holds up to GS_RAW_ARG_BYTES of it */
  gs_u32 params_bytes; /* valid bytes of `params`; the rest of both arrays is zero */
  gs_u8 arg[GS_RAW_ARG_BYTES];
  gs_u8 params[GS_RAW_PARAMS_BYTES];
};

struct gs_raw_switch {
  struct gs_raw_head head;
  struct gs_disable_channels params;
};

#endif /* GPUSHARE_NVRM_RAW_EVENT_H */
