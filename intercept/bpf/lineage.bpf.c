// SPDX-License-Identifier: GPL-2.0
/*
 * Passes membership on at fork. BpfLineage (lineage.h) loads it and enters the first processes; the
 * kernel runs it in the parent, before the child can run, so that no child is ever ahead of it.
 * Whoever is not in the map costs a fork one look-up.
 *
 * Raw tracepoints, because their arguments are the two tasks on every kernel since 4.17, while the
 * record of the same tracepoint has no task and changes.
 */
#include <stdbool.h>
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "intercept/bpf/founder.h"
#include "intercept/bpf/pid_namespace.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* By the pid in the agent's namespace. Preallocated: a fork must not wait for memory here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct gs_founder);
} descendants SEC(".maps");

static __always_inline __u32 process_nr(struct task_struct *task)
{
	return observed_nr(BPF_CORE_READ(task, group_leader, thread_pid));
}

/* sched_process_fork(struct task_struct *parent, struct task_struct *child): the caller and the new
 * task, whoever the child's parent is made to be. For a thread both are one process.
 */
SEC("raw_tp/sched_process_fork")
int lineage_fork(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 parent = process_nr((struct task_struct *)ctx->args[0]);
	struct gs_founder *found = bpf_map_lookup_elem(&descendants, &parent);
	struct gs_founder founder;
	__u32 child;

	if (!found)
		return 0;
	child = process_nr((struct task_struct *)ctx->args[1]);
	if (child == parent)
		return 0;
	founder = *found;
	bpf_map_update_elem(&descendants, &child, &founder, BPF_ANY);
	return 0;
}

/* sched_process_exit(struct task_struct *task, ...), once for each thread; `live` is 0 at the last. */
SEC("raw_tp/sched_process_exit")
int lineage_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u32 pid;

	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	pid = process_nr(task);
	bpf_map_delete_elem(&descendants, &pid);
	return 0;
}
