// SPDX-License-Identifier: GPL-2.0
/*
 * Calls a function of its own at the beginning of the stand-in driver's ioctl, in the way in which
 * a BPF program of type fentry is called there. It shows what becomes of gpushare.ko beside another
 * direct caller of ftrace. It counts the calls that it sees.
 */
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/version.h>
#include <asm/ibt.h>
#include <asm/linkage.h>

static bool shares;
module_param(shares, bool, 0444);
MODULE_PARM_DESC(shares, "Lets others divert the function too, as BPF does (0)");

unsigned long direct_calls;
module_param_named(calls, direct_calls, ulong, 0444);
MODULE_PARM_DESC(calls, "How many calls of the driver's ioctl it has seen");

void direct_entry(void);
asm(".pushsection .text, \"ax\", @progbits\n"
    "	.balign	16\n"
    "	.type direct_entry, @function\n"
    "	.globl direct_entry\n"
    "direct_entry:\n" ASM_ENDBR
    "	lock incq direct_calls(%rip)\n"
    "	" ASM_RET
    ".size direct_entry, . - direct_entry\n"
    ".popsection\n");

/* ftrace asks it whether another one may divert the function. One without it shares with nobody. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
static int agree(struct ftrace_ops *ops, unsigned long ip, enum ftrace_ops_cmd cmd)
#else
static int agree(struct ftrace_ops *ops, enum ftrace_ops_cmd cmd)
#endif
{
	return 0;
}

static struct ftrace_ops ops;

static int find_function(unsigned long *address)
{
	struct kprobe probe = { .symbol_name = "nvidia:nvidia_unlocked_ioctl",
				.flags = KPROBE_FLAG_DISABLED };
	int err = register_kprobe(&probe);

	if (err)
		return err;
	*address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

static int __init direct_init(void)
{
	unsigned long address;
	int err = find_function(&address);

	if (err)
		return err;
	if (shares)
		ops.ops_func = agree;
	err = ftrace_set_filter_ip(&ops, address, 0, 1);
	if (err)
		return err;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	err = register_ftrace_direct(&ops, (unsigned long)direct_entry);
#else
	err = register_ftrace_direct_multi(&ops, (unsigned long)direct_entry);
#endif
	if (err)
		ftrace_free_filter(&ops);
	return err;
}

static void __exit direct_exit(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	unregister_ftrace_direct(&ops, (unsigned long)direct_entry, true);
#else
	unregister_ftrace_direct_multi(&ops, (unsigned long)direct_entry);
	ftrace_free_filter(&ops);
#endif
}

module_init(direct_init);
module_exit(direct_exit);
MODULE_DESCRIPTION("A direct caller at the ioctl of the stand-in driver of gpushare's tests");
MODULE_LICENSE("GPL");
