// SPDX-License-Identifier: GPL-2.0
/*
 * Calls the functions of the driver that nvidia_uvm calls to take a name for memory and to give it
 * back, with a GPU that is none, which the driver refuses. It finds them by their names, so that it
 * can be loaded beside NVIDIA's own module.
 */
#include <linux/kprobes.h>
#include <linux/module.h>

static unsigned int dup_status, free_status;
module_param(dup_status, uint, 0444);
MODULE_PARM_DESC(dup_status, "The driver's answer to a name that is taken");
module_param(free_status, uint, 0444);
MODULE_PARM_DESC(free_status, "The driver's answer to one that is given back");

static void *function_of(const char *name)
{
	struct kprobe probe = {.symbol_name = name, .flags = KPROBE_FLAG_DISABLED};
	void *function;

	if (register_kprobe(&probe))
		return NULL;
	function = probe.addr;
	unregister_kprobe(&probe);
	return function;
}

static int __init uvm_call_init(void)
{
	u32 (*dup)(void *, u32, u32, u32 *, void *) = function_of("nvidia:nvUvmInterfaceDupMemory");
	u32 (*give_back)(void *, u32) = function_of("nvidia:nvUvmInterfaceFreeDupedHandle");
	u32 name = 0;

	if (!dup || !give_back)
		return -ENOENT;
	dup_status = dup(NULL, 0xC1D00001, 0x5C000001, &name, NULL);
	free_status = give_back(NULL, 0x5C000001);
	return 0;
}

static void __exit uvm_call_exit(void)
{
}

module_init(uvm_call_init);
module_exit(uvm_call_exit);
MODULE_DESCRIPTION("Calls what nvidia-uvm calls, for gpushare's tests");
MODULE_LICENSE("GPL");
