/* SPDX-License-Identifier: GPL-2.0
 *
 * The kernel structures that the eBPF probe reads, with only the members that it uses. CO-RE
 * relocates every access to where the running kernel has the member, so the order and the offsets
 * here mean nothing and the build needs no vmlinux.h.
 */
#ifndef GPUSHARE_BPF_KERNEL_TYPES_H
#define GPUSHARE_BPF_KERNEL_TYPES_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct inode {
	unsigned short i_mode;
	__u32 i_rdev;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 start_boottime;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	int exit_code;
};

struct pt_regs {
	unsigned long ax, di, si, dx;
};

#pragma clang attribute pop

#endif /* GPUSHARE_BPF_KERNEL_TYPES_H */
