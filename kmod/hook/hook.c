// SPDX-License-Identifier: GPL-2.0
/*
 * The hook diverts the driver's file operations (open, ioctl, release), when they are of interest,
 * to functions here, which call the original. It is attached when the driver is loaded or comes,
 * and detached when the driver goes or when the module goes. While the hook is drained calls pass
 * it.
 *
 * A task may sleep for long in the driver, below our function. gs_hook_choose() takes a reference
 * on the module before it diverts, and the function drops it last, so rmmod is refused while a task
 * is inside. synchronize_rcu_tasks() in gs_hook_exit() waits for tasks that are in our text without
 * a reference, and never sleep there. A call that begins while the module goes is not diverted.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "compat/version.h"
#include "driver/divert.h"
#include "driver/pin.h"
#include "filter/filter.h"
#include "hook/hook.h"
#include "rm/interest.h"
#include "news/announce.h"
#include "state/client.h"
#include "state/file.h"
#include "state/kept.h"

#define GS_DRIVER "nvidia"
#define GS_DISPLAY_DRIVER "nvidia_drm"

enum gs_hook_state { GS_WAITING, GS_HOOKED, GS_OBSERVING, GS_DRAINED };

/*
 * The names of the driver's ioctl: that since 545.23.06, and that up to 535, which has another
 * function for 32-bit programs.
 */
static const struct gs_ioctl_names {
	const char *name;
	const char *compat;
} gs_ioctl_names[] = {
	{ "nvidia_unlocked_ioctl" },
	{ "nvidia_frontend_unlocked_ioctl", "nvidia_frontend_compat_ioctl" },
};

/* It is under gs_hook_lock. */
static struct {
	enum gs_hook_state state;
	bool is_driver_here;
	const char *name;
	const char *reason;
	int err;
} gs_hook = { .state = GS_WAITING };
static DEFINE_MUTEX(gs_hook_lock);
static bool gs_part_is_hooked[GS_PARTS]; /* under gs_hook_lock */
static bool gs_hook_stays;               /* A function of the driver could not be left alone. */
static DEFINE_STATIC_KEY_FALSE(gs_hook_drained); /* Calls pass unseen; set under gs_hook_lock. */

static long gs_hook_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = gs_filter_ioctl(file, cmd, arg, gs_sites[GS_SITE_IOCTL]);

	gs_module_put();
	return ret;
}

static long gs_hook_compat(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = gs_filter_ioctl(file, cmd, arg, gs_sites[GS_SITE_COMPAT]);

	gs_module_put();
	return ret;
}

/* nvidia_close() frees the clients of a file in all releases. */
static int gs_hook_release(struct inode *inode, struct file *file)
{
	int ret = gs_divert_original((unsigned long)inode, (unsigned long)file, 0,
				     gs_sites[GS_SITE_RELEASE]);

	gs_clients_file_closed(file);
	gs_file_closed(file);
	gs_module_put();
	return ret;
}

static int gs_hook_open(struct inode *inode, struct file *file)
{
	struct gs_file *record = gs_file_new(file);
	int ret = -ENOMEM;

	if (record)
		ret = gs_divert_original((unsigned long)inode, (unsigned long)file, 0,
					 gs_sites[GS_SITE_OPEN]);
	if (ret)
		gs_file_discard(record);
	else
		gs_file_opened(record);
	gs_module_put();
	return ret;
}

static int gs_hook_display(unsigned long device, unsigned long argument, unsigned long file)
{
	int ret = gs_filter_display();

	if (!ret)
		ret = gs_divert_original(device, argument, file, gs_sites[GS_SITE_DISPLAY]);
	gs_module_put();
	return ret;
}

static unsigned long gs_hook_uvm_dup(unsigned long device, unsigned long client,
				     unsigned long memory, unsigned long name, unsigned long info)
{
	unsigned long status = gs_filter_uvm_dup(device, client, memory, name, info);

	gs_module_put();
	return status;
}

static unsigned long gs_hook_uvm_free(unsigned long device, unsigned long name)
{
	unsigned long status = gs_filter_uvm_free(device, name);

	gs_module_put();
	return status;
}

/* Reads a word of user memory. Returns false if it is not there without waiting for it. */
static __always_inline bool gs_peek(unsigned long address, u32 *word)
{
	const u32 __user *user = (const u32 __user *)address;
	bool is_there = false;

	pagefault_disable();
	if (!user_read_access_begin(user, sizeof(*user)))
		goto enable;
	unsafe_get_user(*word, user, end);
	is_there = true;
end:
	user_read_access_end();
enable:
	pagefault_enable();
	return is_there;
}

/*
 * Returns true if the ioctl must be filtered, or if the word that decides cannot be read. The
 * driver may read another word than is looked at here, so driver/pin.c asks again.
 */
static __always_inline bool gs_hook_wants(unsigned int cmd, unsigned long arg)
{
	u32 nr = _IOC_NR(cmd), offset, word;

	switch (gs_interest_in(nr, _IOC_SIZE(cmd), &offset)) {
	case GS_INTEREST_NONE:
		return nr == RM_ESC_XFER;
	case GS_INTEREST_BY_WORD:
		return !gs_peek(arg + offset, &word) || gs_word_is_of_interest(nr, word);
	default:
		return true;
	}
}

static __always_inline unsigned long gs_hook_with_reference(unsigned long site)
{
	if (!gs_module_try_get())
		return 0;
	if (site == gs_sites[GS_SITE_IOCTL])
		return (unsigned long)gs_hook_ioctl;
	if (site == gs_sites[GS_SITE_COMPAT])
		return (unsigned long)gs_hook_compat;
	if (site == gs_sites[GS_SITE_OPEN])
		return (unsigned long)gs_hook_open;
	if (site == gs_sites[GS_SITE_DISPLAY])
		return (unsigned long)gs_hook_display;
	return (unsigned long)gs_hook_release;
}

notrace unsigned long gs_hook_choose(unsigned long a0, unsigned long a1, unsigned long a2,
				     unsigned long site)
{
	if (site == gs_sites[GS_SITE_IOCTL] || site == gs_sites[GS_SITE_COMPAT]) {
		if (static_branch_unlikely(&gs_hook_drained) || !gs_hook_wants(a1, a2))
			return 0;
	} else if (site != gs_sites[GS_SITE_RELEASE] && static_branch_unlikely(&gs_hook_drained)) {
		return 0;
	}
	return gs_hook_with_reference(site);
}

/* A name that goes is noticed also while the hook is drained, as the release of a file is. */
notrace unsigned long gs_hook_choose_uvm(unsigned long site)
{
	if (site == gs_sites[GS_SITE_UVM_FREE])
		return gs_module_try_get() ? (unsigned long)gs_hook_uvm_free : 0;
	if (static_branch_unlikely(&gs_hook_drained) || !gs_module_try_get())
		return 0;
	return (unsigned long)gs_hook_uvm_dup;
}

/* Finds the place of a driver function for gs_sites[]; 0 if there is none that ftrace calls. */
static unsigned long gs_driver_site(const char *module, const char *name)
{
	char symbol[64];
	struct kprobe probe = { .symbol_name = symbol, .flags = KPROBE_FLAG_DISABLED };
	unsigned long site = 0;

	snprintf(symbol, sizeof(symbol), "%s:%s", module, name);
	if (register_kprobe(&probe))
		return 0;
	if (probe.flags & KPROBE_FLAG_FTRACE)
		site = (unsigned long)probe.addr + MCOUNT_INSN_SIZE;
	unregister_kprobe(&probe);
	return site;
}

/* Fills gs_sites[]. Returns NULL, or what was not found. */
static const char *gs_driver_find(void)
{
	const struct gs_ioctl_names *names = gs_ioctl_names;

	gs_sites[GS_SITE_IOCTL] = gs_driver_site(GS_DRIVER, names->name);
	if (!gs_sites[GS_SITE_IOCTL]) {
		names++;
		gs_sites[GS_SITE_IOCTL] = gs_driver_site(GS_DRIVER, names->name);
	}
	if (!gs_sites[GS_SITE_IOCTL])
		return "the driver's ioctl was not found";
	gs_hook.name = names->name;
	gs_sites[GS_SITE_COMPAT] = names->compat ? gs_driver_site(GS_DRIVER, names->compat) : 0;
	gs_sites[GS_SITE_OPEN] = gs_driver_site(GS_DRIVER, "nvidia_open");
	gs_sites[GS_SITE_RELEASE] = gs_driver_site(GS_DRIVER, "nvidia_close");
	if (!gs_sites[GS_SITE_OPEN] || !gs_sites[GS_SITE_RELEASE])
		return "the driver's open or release was not found";
	gs_sites[GS_SITE_COPY_IN] = gs_driver_site(GS_DRIVER, "os_memcpy_from_user");
	gs_sites[GS_SITE_COPY_OUT] = gs_driver_site(GS_DRIVER, "os_memcpy_to_user");
	if (!gs_sites[GS_SITE_COPY_IN] || !gs_sites[GS_SITE_COPY_OUT])
		return "the driver's copying of parameters was not found";
	return NULL;
}

/* Diverts the functions of a part, if the driver has them all. */
static void gs_part_attach(enum gs_part part, bool is_there, const char *what)
{
	int err = is_there ? gs_divert_part_attach(part) : -ENOENT;

	lockdep_assert_held(&gs_hook_lock);
	gs_part_is_hooked[part] = !err;
	if (err)
		pr_warn("%s is not watched (%d)\n", what, err);
}

static void gs_part_detach(enum gs_part part)
{
	lockdep_assert_held(&gs_hook_lock);
	if (gs_part_is_hooked[part] && !gs_divert_part_detach(part))
		gs_hook_stays = true;
	gs_part_is_hooked[part] = false;
}

static void gs_hook_fail(const char *reason, int err)
{
	gs_hook.state = GS_OBSERVING;
	gs_hook.reason = reason;
	gs_hook.err = err;
	pr_warn("observing only: %s (%d)\n", reason, err);
}

static void gs_hook_lost(struct work_struct *work);
static DECLARE_WORK(gs_hook_loss, gs_hook_lost);

/* What is remembered of the driver is of no use once nothing is watched. */
static void gs_hook_forget(void)
{
	gs_clients_forget();
	gs_kept_forget();
	gs_files_forget();
}

/* A call may have gone into RM without passing the probe. It comes from the call itself. */
static void gs_hook_on_miss(void)
{
	schedule_work(&gs_hook_loss);
}

/* Lets calls be filtered, and those barred that were not; or lets all pass. */
static void gs_hook_filter(bool is_filtering)
{
	gs_pin_bar(is_filtering);
	if (is_filtering)
		static_branch_disable(&gs_hook_drained);
	else
		static_branch_enable(&gs_hook_drained);
	gs_files_see(is_filtering);
}

/* nvidia calls nothing of this by itself, but what nvidia_uvm calls is in it. */
static void gs_uvm_attach(void)
{
	gs_sites[GS_SITE_UVM_DUP] = gs_driver_site(GS_DRIVER, "nvUvmInterfaceDupMemory");
	gs_sites[GS_SITE_UVM_FREE] = gs_driver_site(GS_DRIVER, "nvUvmInterfaceFreeDupedHandle");
	gs_part_attach(GS_PART_UVM, gs_sites[GS_SITE_UVM_DUP] && gs_sites[GS_SITE_UVM_FREE],
		       "memory that nvidia_uvm keeps");
}

/*
 * The probe where calls enter RM is set before any call is filtered. It bars calls that were not
 * filtered only when all calls are.
 */
static void gs_hook_attach(void)
{
	const char *reason = gs_driver_find();
	int err;

	lockdep_assert_held(&gs_hook_lock);
	gs_hook_forget(); /* what calls left that ended after a detach */
	if (reason) {
		gs_hook_fail(reason, -ENOENT);
		return;
	}
	err = gs_pin_attach(GS_DRIVER, gs_hook_on_miss);
	if (err) {
		gs_hook_fail(err == -EPERM ? "kprobes are disarmed" :
					     "the driver's way into RM cannot be watched",
			     err);
		return;
	}
	err = gs_divert_attach();
	if (err) {
		gs_pin_detach();
		gs_hook_fail(err == -EBUSY      ? "another module diverts the driver's functions" :
			     err == -EOPNOTSUPP ? "kernel.ftrace_enabled is 0" :
						  "the driver's functions cannot be diverted",
			     err);
		return;
	}
	gs_uvm_attach();
	gs_hook_filter(!gs_hook_is_draining());
	gs_hook.state = GS_HOOKED;
	pr_info("hooked %s\n", gs_hook.name);
}

/* A function that cannot be left alone comes to us for ever: the module stays, and calls pass. */
static void gs_hook_detach(enum gs_hook_state state)
{
	lockdep_assert_held(&gs_hook_lock);
	if (gs_hook.state == GS_HOOKED) {
		gs_pin_bar(false);
		gs_files_see(false);
		gs_part_detach(GS_PART_UVM);
		if (!gs_divert_detach())
			gs_hook_stays = true;
		gs_pin_detach();
		gs_hook_forget();
	}
	gs_hook.state = state;
}

/* A program can let a call seem lost by changing it meanwhile, so the probe itself is asked. */
static void gs_hook_lost(struct work_struct *work)
{
	bool is_lost;

	mutex_lock(&gs_hook_lock);
	is_lost = gs_hook.state == GS_HOOKED && !gs_hook_is_draining() && !gs_pin_is_armed();
	if (is_lost) {
		gs_hook_detach(GS_OBSERVING);
		gs_hook_fail("calls enter RM unseen, so kprobes were disarmed", -EPERM);
	}
	mutex_unlock(&gs_hook_lock);
	if (is_lost)
		gs_announce(GS_NEWS_DRIVER);
}

/* A release without that function makes no such memory. */
static void gs_display_attach(void)
{
	gs_sites[GS_SITE_DISPLAY] =
		gs_driver_site(GS_DISPLAY_DRIVER, "nv_drm_gem_alloc_nvkms_memory_ioctl");
	if (gs_sites[GS_SITE_DISPLAY])
		gs_part_attach(GS_PART_DISPLAY, true, "memory for displays");
}

static void gs_display_notify(unsigned long action)
{
	mutex_lock(&gs_hook_lock);
	if (action == MODULE_STATE_COMING)
		gs_display_attach();
	else if (action == MODULE_STATE_GOING)
		gs_part_detach(GS_PART_DISPLAY);
	mutex_unlock(&gs_hook_lock);
}

static int gs_hook_notify(struct notifier_block *block, unsigned long action, void *data)
{
	const struct module *module = data;

	if (strcmp(module->name, GS_DISPLAY_DRIVER) == 0)
		gs_display_notify(action);
	if (strcmp(module->name, GS_DRIVER) != 0)
		return NOTIFY_OK;
	mutex_lock(&gs_hook_lock);
	if (action == MODULE_STATE_COMING) {
		gs_hook.is_driver_here = true;
		if (gs_hook.state == GS_WAITING)
			gs_hook_attach();
	} else if (action == MODULE_STATE_GOING) {
		gs_hook.is_driver_here = false;
		gs_hook_detach(GS_WAITING);
	}
	mutex_unlock(&gs_hook_lock);
	gs_announce(GS_NEWS_DRIVER);
	return NOTIFY_OK;
}

static struct notifier_block gs_hook_notifier = { .notifier_call = gs_hook_notify };

/**
 * gs_hook_drain() - Let calls pass unseen, so that the module can be unloaded, or filter again.
 * @is_draining: True to let them pass.
 *
 * Calls that are inside stay until the driver answers them, and no more come in, except the release
 * of files: what is remembered of programs stays until they end.
 */
void gs_hook_drain(bool is_draining)
{
	mutex_lock(&gs_hook_lock);
	if (is_draining != gs_hook_is_draining())
		gs_hook_filter(!is_draining);
	if (!is_draining && gs_hook.state == GS_OBSERVING && gs_hook.is_driver_here)
		gs_hook_attach();
	mutex_unlock(&gs_hook_lock);
	gs_announce(GS_NEWS_DRIVER);
}

/**
 * gs_hook_is_draining() - Was the hook drained last?
 *
 * Return: True if it was.
 */
bool gs_hook_is_draining(void)
{
	return static_key_enabled(&gs_hook_drained);
}

/**
 * gs_hook_describe() - Write the text of the attribute `driver`.
 * @text: A page of sysfs.
 *
 * Return: The length of the text.
 */
int gs_hook_describe(char *text)
{
	int len;

	mutex_lock(&gs_hook_lock);
	switch (gs_hook_is_draining() ? GS_DRAINED : gs_hook.state) {
	case GS_DRAINED:
		len = sysfs_emit(text, "drained\n");
		break;
	case GS_HOOKED:
		len = sysfs_emit(text, "hooked " GS_DRIVER ":%s\n", gs_hook.name);
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
 * gs_hook_init() - Attach to the driver, or wait for it.
 *
 * Return: 0, also if there is no driver or it cannot be hooked; a negative errno only if the
 * loading of modules could not be watched.
 */
int gs_hook_init(void)
{
	int err = register_module_notifier(&gs_hook_notifier);

	if (err)
		return err;
	mutex_lock(&gs_hook_lock);
	if (gs_hook.state == GS_WAITING && gs_driver_site(GS_DRIVER, "nvidia_close")) {
		gs_hook.is_driver_here = true;
		gs_hook_attach();
	}
	if (!gs_part_is_hooked[GS_PART_DISPLAY])
		gs_display_attach();
	mutex_unlock(&gs_hook_lock);
	return 0;
}

/**
 * gs_hook_exit() - Detach, and wait until no task is inside.
 */
void gs_hook_exit(void)
{
	unregister_module_notifier(&gs_hook_notifier);
	mutex_lock(&gs_hook_lock);
	gs_hook_detach(GS_WAITING);
	gs_part_detach(GS_PART_DISPLAY);
	mutex_unlock(&gs_hook_lock);
	cancel_work_sync(&gs_hook_loss);
	/* The driver would call into memory that is free. Only a restart of the machine helps. */
	while (WARN_ON_ONCE(gs_hook_stays))
		schedule_timeout_uninterruptible(MAX_SCHEDULE_TIMEOUT);
	gs_divert_exit();
	synchronize_rcu_tasks();
	gs_hook_forget(); /* what calls left that ended after a drain */
}
