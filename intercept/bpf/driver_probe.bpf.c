// SPDX-License-Identifier: GPL-2.0
/*
 * The eBPF probe. It reports what processes create at the NVIDIA driver's ioctl boundary, and when
 * they end. Probe (probe.h) loads it; the kernel runs it in the process that makes the call.
 *
 * One program runs at the *exit* of ioctl(2): by then the driver has filled in handles and status,
 * and the call's arguments are still in the saved user registers, so that nothing must be kept from
 * its entry. The memory that they point to is the program's, which may have changed it meanwhile:
 * only the process, the descriptor and the command are certain, and the observer examines the rest.
 *
 * Checks come in the order of their cost. The type byte of the command ('F') is not checked, because
 * the driver does not check it either (nvidia_ioctl() in kernel-open/nvidia/nv.c): a program could
 * hide behind another letter.
 *
 * Needs Linux 5.15 (bpf_task_pt_regs) with BTF, on x86-64: there an ioctl's return leaves the
 * registers of its arguments as they were.
 */
#include <stdbool.h>
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "intercept/bpf/pid_namespace.bpf.h"
#include "intercept/nvrm/raw_event.h"

char LICENSE[] SEC("license") = "GPL";

#define MINORBITS 20 /* the kernel's own dev_t, linux/kdev_t.h */
#define S_IFMT 0170000
#define S_IFCHR 0020000
#define IOC_NR(cmd) ((cmd) & 0xff)
#define IOC_SIZE(cmd) (((cmd) >> 16) & 0x3fff)

/* Options, set before load. */
const volatile __u32 observer_pid;   /* this process is never reported */
const volatile __u8 accept_any_file; /* for tests: files that are not the driver's count too */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21); /* bytes; the observer sets its own */
} events SEC(".maps");

/* How many records were lost because the ring or a table was full. Never reset. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* The processes that use the driver, by the pid that is reported. Only their ends are reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, __u32);
	__type(value, __u8);
} users SEC(".maps");

/* Calls that could not be read, by process, since the observer last took note of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 10);
	__type(key, __u32);
	__type(value, __u64);
} unread SEC(".maps");

/*
 * Where a record is put together: what was reserved in the ring and given back would still fill it
 * until it is read, so that calls that cannot be read would drive out others'. The kernel runs the
 * programs of a tracepoint with preemption off and never two on a CPU.
 */
union record {
	struct gs_raw_event call;
	struct gs_raw_switch change;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union record);
} scratch SEC(".maps");

static __always_inline void count_drop(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &zero);

	if (count)
		(*count)++;
}

static __always_inline __u32 innermost_nr(struct pid *pid)
{
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid *number;

	if (level >= MAX_PID_LEVELS)
		return 0;
	number = &pid->numbers[level];
	return BPF_CORE_READ(number, nr);
}

static __always_inline void fill_head(struct gs_raw_head *head, struct task_struct *task,
				      __u32 kind, __u32 pid)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	head->time_ns = bpf_ktime_get_ns();
	head->start_boottime_ns = BPF_CORE_READ(leader, start_boottime);
	head->cgroup_id = bpf_get_current_cgroup_id();
	head->kind = kind;
	head->pid = pid;
	head->tid = observed_nr(BPF_CORE_READ(task, thread_pid));
	head->ns_pid = innermost_nr(BPF_CORE_READ(leader, thread_pid));
	head->uid = (__u32)bpf_get_current_uid_gid();
	head->status = 0;
	BPF_CORE_READ_INTO(&head->comm, leader, comm);
}

/*
 * Says that a call of process @pid could not be read, which is its own doing: others lose nothing
 * by it. There is one record until the observer has taken note, however many such calls it makes.
 */
static __always_inline void report_unread(struct task_struct *task, __u32 pid)
{
	struct gs_raw_head *head;
	__u64 one = 1, *count = bpf_map_lookup_elem(&unread, &pid);

	if (count) {
		__sync_fetch_and_add(count, 1);
		return;
	}
	bpf_map_update_elem(&unread, &pid, &one, BPF_ANY);
	head = bpf_ringbuf_reserve(&events, sizeof(*head), 0);
	if (!head) {
		bpf_map_delete_elem(&unread, &pid);
		count_drop();
		return;
	}
	fill_head(head, task, GS_RAW_UNREAD, pid);
	bpf_ringbuf_submit(head, 0);
}

/* Puts a record into the ring. */
static __always_inline void report(void *record, __u64 bytes)
{
	if (bpf_ringbuf_output(&events, record, bytes, 0))
		count_drop();
}

/*
 * Reports a control that froze or thawed channels, of which the parameters are wanted whole.
 * Returns 0, or -EFAULT.
 */
static __always_inline int report_switch(struct gs_raw_switch *event, struct task_struct *task,
					 __u32 pid, const void *user)
{
	struct gs_nvos54 arg;
	int err;

	err = bpf_probe_read_user(&arg, sizeof(arg), user);
	if (!err)
		err = bpf_probe_read_user(&event->params, sizeof(event->params),
					  (const void *)arg.p_params);
	if (err)
		return err;
	fill_head(&event->head, task, GS_RAW_SWITCH, pid);
	report(event, sizeof(*event));
	return 0;
}

/* True if descriptor @fd of @task is a device file of the driver (/dev/nvidiactl, /dev/nvidiaN). */
static __always_inline bool is_driver_file(struct task_struct *task, unsigned int fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots, *file = NULL;
	struct inode *inode;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return false;
	slots = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), slots + fd);
	inode = BPF_CORE_READ(file, f_inode);
	return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFCHR &&
	       BPF_CORE_READ(inode, i_rdev) >> MINORBITS == GS_NV_MAJOR;
}

/*
 * True for commands that create, free or control objects. The driver accepts each with exactly
 * these sizes, so that a program cannot evade the probe by stating another; VID_HEAP_CONTROL grew
 * over time. RM_DUP_OBJECT is left out: it gives a second name to an object that was reported.
 */
static __always_inline bool is_command_of_interest(__u32 nr, __u32 size)
{
	switch (nr) {
	case GS_NV_ESC_RM_CONTROL:
		return size == sizeof(struct gs_nvos54);
	case GS_NV_ESC_RM_ALLOC:
		return size == sizeof(struct gs_nvos64) || size == sizeof(struct gs_nvos21);
	case GS_NV_ESC_RM_FREE:
		return size == sizeof(struct gs_nvos00);
	case GS_NV_ESC_RM_ALLOC_OBJECT:
		return size == sizeof(struct gs_nvos05);
	case GS_NV_ESC_RM_ALLOC_MEMORY:
		return size == sizeof(struct gs_nvos02_fd);
	case GS_NV_ESC_RM_VID_HEAP_CONTROL:
		return size >= sizeof(struct gs_nvos32_head);
	default:
		return false;
	}
}

/*
 * True for controls that change which program runs on the GPU, and when. All others are not
 * reported: a program makes hundreds of them for queries and to set up engines and memory.
 */
static __always_inline bool is_scheduling_control(__u32 cmd)
{
	switch (cmd) {
	case GS_CTRL_GROUP_SCHEDULE:             /* puts a group on or off its runlist */
	case GS_CTRL_SET_TIMESLICE:              /* sets its slice; a program may set its own */
	case GS_CTRL_GROUP_PREEMPT:              /* takes a group off the GPU now */
	case GS_CTRL_SET_INTERLEAVE:             /* how often a group appears on the runlist */
	case GS_CTRL_MAKE_REALTIME:              /* lets a group pass all others */
	case GS_CTRL_CHANNEL_SCHEDULE:           /* the same for a channel outside a group */
	case GS_CTRL_CHANNEL_SET_INTERLEAVE:
	case GS_CTRL_CHANNEL_RESTART_RUNLIST:    /* makes a realtime group run next */
	case GS_CTRL_CHANNEL_STOP:               /* ends a channel */
	case GS_CTRL_DISABLE_CHANNELS:           /* freezes and thaws channels of any program */
	case GS_CTRL_CHANNEL_PREEMPTIVE_REMOVAL: /* takes channels off the GPU */
	case GS_CTRL_RUNLIST_SET_SCHED_POLICY:   /* changes the order of a whole runlist */
	case GS_CTRL_OBJSCHED_SET_STATE:
		return true;
	default:
		return false;
	}
}

/*
 * Returns how many bytes of allocation parameters are needed of a class: up to the last member that
 * is decoded; -1 if objects of this class are not reported.
 */
static __always_inline int params_of_interest(__u32 class_id)
{
	switch (class_id) {
	case GS_CLASS_ROOT:
	case GS_CLASS_ROOT_NON_PRIV:
	case GS_CLASS_ROOT_CLIENT:
		return 0;
	case GS_CLASS_DEVICE:
		return sizeof(__u32); /* device_id */
	case GS_CLASS_CHANNEL_GROUP:
		return 4 * sizeof(__u32); /* engine_type */
	case GS_CLASS_MEMORY_LOCAL_USER: /* system memory counts for nobody */
		return GS_RAW_PARAMS_BYTES; /* size */
	default:
		return class_id > 0xff && (class_id & 0xff) == GS_CHANNEL_CLASS_LOW_BYTE ? 0 : -1;
	}
}

/*
 * The same for a command, by the first four words of its argument, which hold the class, the
 * control or the function.
 */
static __always_inline int params_wanted(__u32 nr, const __u32 *words)
{
	switch (nr) {
	case GS_NV_ESC_RM_CONTROL:
		return is_scheduling_control(words[2]) ? 2 * sizeof(__u64) : -1;
	case GS_NV_ESC_RM_ALLOC:
		return params_of_interest(words[3]);
	case GS_NV_ESC_RM_ALLOC_OBJECT:
	case GS_NV_ESC_RM_ALLOC_MEMORY:
		return params_of_interest(words[3]) < 0 ? -1 : 0;
	case GS_NV_ESC_RM_VID_HEAP_CONTROL:
		return words[2] == GS_HEAP_ALLOC_SIZE || words[2] == GS_HEAP_ALLOC_SIZE_RANGE ||
				       words[2] == GS_HEAP_FREE ?
			       0 :
			       -1;
	default:
		return 0;
	}
}

/*
 * Copies the argument and up to @wanted bytes of its parameters. Returns 0, or -EFAULT when memory
 * that the driver has just read cannot be read any more; parameters that it refused need not be
 * readable.
 */
static __always_inline int read_argument(struct gs_raw_event *event, const void *user, int wanted)
{
	/* NVOS54 has its parameters where NVOS21 has them, NVOS64 only the pointer. */
	struct gs_nvos21 *arg = (struct gs_nvos21 *)event->arg;
	struct gs_nvos64 *arg64 = (struct gs_nvos64 *)event->arg;
	bool is_nvos64 = event->arg_size == sizeof(*arg64);
	__u32 bytes = event->arg_size;
	int err;

	__builtin_memset(event->arg, 0, sizeof(event->arg) + sizeof(event->params));
	if (bytes > GS_RAW_ARG_BYTES)
		bytes = GS_RAW_ARG_BYTES;
	err = bpf_probe_read_user(event->arg, bytes, user);
	if (err || wanted <= 0 || !arg->p_params)
		return err;
	bytes = is_nvos64 ? arg64->params_size : arg->params_size;
	if (bytes == 0 || bytes > (__u32)wanted) /* 0: the class has its own size */
		bytes = wanted;
	if (bytes > GS_RAW_PARAMS_BYTES)
		bytes = GS_RAW_PARAMS_BYTES;
	err = bpf_probe_read_user(event->params, bytes, (const void *)arg->p_params);
	if (!err)
		event->params_bytes = bytes;
	else if ((is_nvos64 ? arg64->status : arg->status) != GS_NV_OK)
		err = 0;
	return err;
}

/* Returns 0, or -EFAULT. */
static __always_inline int report_call(struct gs_raw_event *event, struct task_struct *task,
				       __u32 pid, const void *user, int wanted)
{
	int err = read_argument(event, user, wanted);

	if (err)
		return err;
	fill_head(&event->head, task, GS_RAW_IOCTL, pid);
	report(event, sizeof(*event));
	return 0;
}

/*
 * The result is read from the registers, like the arguments. A realtime kernel (6.1-rt) states a
 * shorter record for this tracepoint than it hands to programs, and refuses those that read its end.
 */
SEC("tracepoint/syscalls/sys_exit_ioctl")
int ioctl_exit(void *ctx __attribute__((unused)))
{
	struct task_struct *task;
	struct pt_regs *regs;
	struct gs_nv_xfer xfer;
	const void *user;
	union record *record;
	__u32 cmd, nr, size, fd, pid, words[4], zero = 0;
	__u8 one = 1;
	int wanted, err;

	task = (struct task_struct *)bpf_get_current_task_btf();
	regs = (struct pt_regs *)bpf_task_pt_regs((void *)task);
	if ((long)regs->ax < 0)
		return 0;
	cmd = regs->si;
	nr = IOC_NR(cmd);
	size = IOC_SIZE(cmd);
	if (nr != GS_NV_ESC_IOCTL_XFER_CMD && !is_command_of_interest(nr, size))
		return 0;
	fd = regs->di;
	if (!accept_any_file && !is_driver_file(task, fd))
		return 0;
	user = (const void *)regs->dx;
	err = 0;
	if (nr == GS_NV_ESC_IOCTL_XFER_CMD) {
		if (size != sizeof(xfer))
			return 0;
		err = bpf_probe_read_user(&xfer, sizeof(xfer), user);
		nr = xfer.cmd;
		size = xfer.size;
		user = (const void *)xfer.ptr;
		if (!err && !is_command_of_interest(nr, size))
			return 0;
	}
	if (!err)
		err = bpf_probe_read_user(words, sizeof(words), user);
	wanted = err ? 0 : params_wanted(nr, words);
	if (wanted < 0)
		return 0;
	pid = observed_nr(BPF_CORE_READ(task, group_leader, thread_pid));
	if (pid == 0 || pid == observer_pid)
		return 0;

	/* The process becomes known before its record is out, so that its exit is never missed. */
	if (!bpf_map_lookup_elem(&users, &pid) && bpf_map_update_elem(&users, &pid, &one, BPF_ANY))
		count_drop();
	record = bpf_map_lookup_elem(&scratch, &zero);
	if (!record)
		return 0; /* cannot be: the array has this element */
	if (!err && nr == GS_NV_ESC_RM_CONTROL && words[2] == GS_CTRL_DISABLE_CHANNELS) {
		err = report_switch(&record->change, task, pid, user);
	} else if (!err) {
		record->call.fd = fd;
		record->call.nr = nr;
		record->call.arg_size = size;
		record->call.params_bytes = 0;
		err = report_call(&record->call, task, pid, user, wanted);
	}
	if (err)
		report_unread(task, pid);
	return 0;
}

/* The process of @task stops using the driver. Reports that once, even when two threads race. */
static __always_inline int report_end(struct task_struct *task, __u32 kind, __u32 status)
{
	__u32 pid = observed_nr(BPF_CORE_READ(task, group_leader, thread_pid));
	struct gs_raw_head *head;

	if (bpf_map_delete_elem(&users, &pid))
		return 0;
	head = bpf_ringbuf_reserve(&events, sizeof(*head), 0);
	if (!head) {
		count_drop();
		return 0;
	}
	fill_head(head, task, kind, pid);
	head->status = status;
	bpf_ringbuf_submit(head, 0);
	return 0;
}

/* The driver's files are close-on-exec, so an exec frees the old program's objects. */
SEC("tracepoint/sched/sched_process_exec")
int process_exec(void *ctx __attribute__((unused)))
{
	return report_end((struct task_struct *)bpf_get_current_task_btf(), GS_RAW_EXEC, 0);
}

/*
 * Runs once for each thread. `live` has been decremented before, so that it is 0 for the last one,
 * or for both when two race: report_end() reports one of them. All threads of a process that ends
 * as a whole have its status.
 */
SEC("tracepoint/sched/sched_process_exit")
int process_exit(void *ctx __attribute__((unused)))
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();

	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	return report_end(task, GS_RAW_EXIT, (__u32)BPF_CORE_READ(task, exit_code));
}
