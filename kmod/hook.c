// SPDX-License-Identifier: GPL-2.0
/*
 * The hook: ftrace diverts the driver's file operations (ioctl and release) to functions here, which
 * call the original. Attached when the driver is loaded, or when it comes; detached when it goes, is
 * drained, or we go.
 *
 * A task may sleep for long in the driver, below our function. The callback takes a reference on
 * this module before it diverts and the function drops it last, so rmmod is refused while anyone is
 * inside; synchronize_rcu_tasks() in gs_hook_exit() waits for those between the two instructions
 * around the reference and our text. A call that begins while the module goes is not diverted.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sysfs.h>

#include "filter.h"
#include "hook.h"
#include "pin.h"
#include "sysfs.h"
#include "version.h"

#define GS_DRIVER "nvidia"

enum gs_hook_state { GS_WAITING, GS_HOOKED, GS_DRAINED, GS_OBSERVING };

typedef int (*gs_release_fn)(struct inode *inode, struct file *file);

/* Its ioctl: since 545.23.06, and up to 535. In all of them nvidia_close() frees a file's clients. */
static const char *const gs_ioctl_names[] = {
	"nvidia_unlocked_ioctl",
	"nvidia_frontend_unlocked_ioctl",
};

/*
 * Addresses are set before ftrace diverts anyone. State and reason are under gs_hook_lock; `ioctl`
 * and `release` are read by diverted calls, which exist only while the driver and the hook do.
 */
static struct {
	enum gs_hook_state state;
	bool is_driver_here;
	const char *name;
	const char *reason;
	int err;
	unsigned long ioctl;
	unsigned long release;
} gs_hook = { .state = GS_WAITING };
static DEFINE_MUTEX(gs_hook_lock);

/*
 * How the original is called: behind its call of ftrace, which then is not asked twice. With indirect
 * branch tracking a function can only be entered at its beginning, and the callback lets calls from
 * this module pass.
 */
#ifdef CONFIG_X86_KERNEL_IBT
#define GS_ENTERS_AT_BEGINNING true
#define GS_ENTRY_OFFSET 0
#else
#define GS_ENTERS_AT_BEGINNING false
#define GS_ENTRY_OFFSET MCOUNT_INSN_SIZE
#endif

#define GS_ENTRY_MAX 16 /* ftrace's place is nearer to the function's start */

static long gs_hook_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = gs_filter_ioctl(file, cmd, arg, (gs_ioctl_fn)(gs_hook.ioctl + GS_ENTRY_OFFSET));

	module_put(THIS_MODULE);
	return ret;
}

static int gs_hook_release(struct inode *inode, struct file *file)
{
	int ret = ((gs_release_fn)(gs_hook.release + GS_ENTRY_OFFSET))(inode, file);

	gs_clients_file_closed(file);
	module_put(THIS_MODULE);
	return ret;
}

/* Calls nothing that could lead here again, so it needs no protection from recursion. */
static void notrace gs_hook_divert(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, struct ftrace_regs *regs)
{
	if (GS_ENTERS_AT_BEGINNING && within_module(parent_ip, THIS_MODULE))
		return;
	if (try_module_get(THIS_MODULE))
		gs_ftrace_divert(regs, ip - gs_hook.ioctl < GS_ENTRY_MAX ?
					       (unsigned long)gs_hook_ioctl :
					       (unsigned long)gs_hook_release);
}

static struct ftrace_ops gs_hook_ops = {
	.func = gs_hook_divert,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

/* kprobes name the place behind a function's ENDBR, where an indirect call may not arrive. */
static unsigned long gs_function_start(unsigned long address)
{
#ifdef CONFIG_X86_KERNEL_IBT
	if (gs_is_endbr((const u32 *)(address - ENDBR_INSN_SIZE)))
		return address - ENDBR_INSN_SIZE;
#endif
	return address;
}

/* The address of a function of the driver; 0 when it has none of that name. */
static unsigned long gs_driver_address(const char *name)
{
	char symbol[64];
	struct kprobe probe = { .symbol_name = symbol };
	unsigned long address;

	snprintf(symbol, sizeof(symbol), GS_DRIVER ":%s", name);
	if (register_kprobe(&probe))
		return 0;
	address = gs_function_start((unsigned long)probe.addr);
	unregister_kprobe(&probe);
	return address;
}

static bool gs_driver_find(void)
{
	unsigned int i;

	gs_hook.release = gs_driver_address("nvidia_close");
	for (i = 0; i < ARRAY_SIZE(gs_ioctl_names); i++) {
		gs_hook.name = gs_ioctl_names[i];
		gs_hook.ioctl = gs_driver_address(gs_hook.name);
		if (gs_hook.ioctl)
			return gs_hook.release;
	}
	return false;
}

static void gs_hook_fail(const char *reason, int err)
{
	gs_hook.state = GS_OBSERVING;
	gs_hook.reason = reason;
	gs_hook.err = err;
	pr_warn("observing only: %s (%d)\n", reason, err);
}

static void gs_hook_attach(void)
{
	int err;

	lockdep_assert_held(&gs_hook_lock);
	gs_clients_forget(); /* what calls have left that ended after the hook was detached */
	if (!gs_driver_find()) {
		gs_hook_fail("the driver's ioctl was not found", -ENOENT);
		return;
	}
	err = ftrace_set_filter_ip(&gs_hook_ops, gs_hook.ioctl, 0, 1); /* in place of older */
	if (!err)
		err = ftrace_set_filter_ip(&gs_hook_ops, gs_hook.release, 0, 0);
	if (err) {
		gs_hook_fail("the driver's ioctl cannot be traced", err);
		return;
	}
	gs_clients_forget(); /* what calls that ended after a drain have left */
	err = register_ftrace_function(&gs_hook_ops);
	if (err) {
		gs_hook_fail(err == -EBUSY ? "another module diverts the driver's ioctl" :
					     "the driver's ioctl cannot be diverted",
			     err);
		return;
	}
	gs_hook.state = GS_HOOKED;
	err = gs_pin_attach(GS_DRIVER);
	if (err)
		pr_warn("arguments cannot be pinned (%d): a program may race the filter\n", err);
	pr_info("hooked %s\n", gs_hook.name);
}

/* What was remembered is of no use once calls pass unseen. */
static void gs_hook_detach(enum gs_hook_state state)
{
	lockdep_assert_held(&gs_hook_lock);
	if (gs_hook.state == GS_HOOKED) {
		gs_pin_detach();
		unregister_ftrace_function(&gs_hook_ops);
		gs_clients_forget();
	}
	gs_hook.state = state;
}

static int gs_hook_notify(struct notifier_block *block, unsigned long action, void *data)
{
	const struct module *module = data;

	if (strcmp(module->name, GS_DRIVER) != 0)
		return NOTIFY_OK;
	mutex_lock(&gs_hook_lock);
	if (action == MODULE_STATE_COMING) {
		gs_hook.is_driver_here = true;
		if (gs_hook.state == GS_WAITING)
			gs_hook_attach();
	} else if (action == MODULE_STATE_GOING) {
		gs_hook.is_driver_here = false;
		gs_hook_detach(gs_hook.state == GS_DRAINED ? GS_DRAINED : GS_WAITING);
	}
	mutex_unlock(&gs_hook_lock);
	gs_sysfs_notify("driver");
	return NOTIFY_OK;
}

static struct notifier_block gs_hook_notifier = { .notifier_call = gs_hook_notify };

/**
 * gs_hook_drain() - let calls pass unseen, so that the module can be unloaded; or look again
 * @is_draining: which
 *
 * Those inside stay until the driver answers them; no one comes in any more.
 *
 * Return: 0.
 */
int gs_hook_drain(bool is_draining)
{
	mutex_lock(&gs_hook_lock);
	if (is_draining) {
		gs_hook_detach(GS_DRAINED);
	} else if (gs_hook.state == GS_DRAINED) {
		gs_hook.state = GS_WAITING;
		if (gs_hook.is_driver_here)
			gs_hook_attach();
	}
	mutex_unlock(&gs_hook_lock);
	gs_sysfs_notify("driver");
	return 0;
}

/**
 * gs_hook_is_draining() - was drained last?
 *
 * Return: true when it was.
 */
bool gs_hook_is_draining(void)
{
	return READ_ONCE(gs_hook.state) == GS_DRAINED;
}

/**
 * gs_hook_describe() - the attribute `driver`
 * @text: page of sysfs
 *
 * Return: its length.
 */
int gs_hook_describe(char *text)
{
	int len;

	mutex_lock(&gs_hook_lock);
	switch (gs_hook.state) {
	case GS_HOOKED:
		len = sysfs_emit(text, "hooked " GS_DRIVER ":%s\n", gs_hook.name);
		break;
	case GS_DRAINED:
		len = sysfs_emit(text, "drained\n");
		break;
	case GS_OBSERVING:
		len = sysfs_emit(text, "observing only: %s (%d)\n", gs_hook.reason, gs_hook.err);
		break;
	default:
		len = sysfs_emit(text, "waiting for driver\n");
	}
	mutex_unlock(&gs_hook_lock);
	return len;
}

/**
 * gs_hook_init() - attach to the driver, or wait for it
 *
 * Return: 0 also when there is no driver or it cannot be hooked; a negative errno only when its
 * coming could not be watched.
 */
int gs_hook_init(void)
{
	int err = register_module_notifier(&gs_hook_notifier);

	if (err)
		return err;
	mutex_lock(&gs_hook_lock);
	if (gs_hook.state == GS_WAITING && gs_driver_address("nvidia_close")) {
		gs_hook.is_driver_here = true;
		gs_hook_attach();
	}
	mutex_unlock(&gs_hook_lock);
	return 0;
}

/**
 * gs_hook_exit() - detach, and wait until nobody is inside
 */
void gs_hook_exit(void)
{
	unregister_module_notifier(&gs_hook_notifier);
	mutex_lock(&gs_hook_lock);
	gs_hook_detach(GS_DRAINED);
	mutex_unlock(&gs_hook_lock);
	ftrace_free_filter(&gs_hook_ops); /* for good: it leaves the ops unusable */
	synchronize_rcu_tasks();
	gs_clients_forget(); /* what calls that ended after a drain have left */
	gs_clients_forget(); /* of calls that ended after they were forgotten last */
}
