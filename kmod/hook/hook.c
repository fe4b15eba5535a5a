// SPDX-License-Identifier: GPL-2.0
/*
 * The hook diverts the driver's file operations (open, ioctl, release), when they are of interest,
 * to functions in entries.c, which call the original. It is attached when the driver is loaded or
 * comes, and detached when the driver goes or when the module goes. While the hook is drained calls
 * pass it.
 *
 * A diverted call holds a reference on the module, so rmmod is refused while a task is inside.
 * synchronize_rcu_tasks() in gs_hook_exit() waits for tasks that are in our text without a
 * reference, and never sleep there. A call that begins while the module goes is not diverted.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>

#include "driver/divert.h"
#include "driver/dma_buf.h"
#include "driver/pin.h"
#include "hook/entries.h"
#include "hook/hook.h"
#include "hook/parts.h"
#include "hook/sites.h"
#include "news/announce.h"
#include "state/buffered.h"
#include "state/client.h"
#include "state/file.h"
#include "state/kept.h"

enum gs_hook_state { GS_WAITING, GS_HOOKED, GS_OBSERVING, GS_DRAINED };

/* It is under gs_hook_lock. */
static struct {
	enum gs_hook_state state;
	bool is_driver_here;
	const char *name;
	const char *reason;
	int err;
} gs_hook = { .state = GS_WAITING };
static DEFINE_MUTEX(gs_hook_lock);
static bool gs_hook_stays; /* A function of the driver could not be left alone. */

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
	gs_buffered_forget();
	gs_files_forget();
}

/* A call may have gone into RM without passing the probe. It comes from the call itself. */
static void gs_hook_on_miss(void)
{
	schedule_work(&gs_hook_loss);
}

/*
 * Lets calls be filtered, and those barred that were not; or lets all pass. To turn the branch may
 * take long, and meanwhile no call may be barred that is not filtered.
 */
static void gs_hook_filter(bool is_filtering)
{
	if (is_filtering) {
		static_branch_disable(&gs_hook_drained);
		gs_pin_bar(true);
	} else {
		gs_pin_bar(false);
		static_branch_enable(&gs_hook_drained);
	}
	gs_files_see(is_filtering);
}

static const char *gs_hook_why_not_diverted(int err)
{
	switch (err) {
	case -EBUSY:
		return "another module or BPF program diverts the driver's functions";
	case -EOPNOTSUPP:
		return "kernel.ftrace_enabled is 0";
	default:
		return "the driver's functions cannot be diverted";
	}
}

/*
 * The probe where calls enter RM is set before any call is filtered. It bars calls that were not
 * filtered only when all calls are.
 */
static void gs_hook_attach(void)
{
	const char *reason = gs_sites_find(&gs_hook.name);
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
		gs_hook_fail(gs_hook_why_not_diverted(err), err);
		return;
	}
	gs_part_attach(GS_PART_UVM);
	gs_dma_buf_attach(GS_DRIVER);
	gs_hook_filter(!gs_hook_is_draining());
	gs_hook.state = GS_HOOKED;
	pr_info("hooked %s\n", gs_hook.name);
}

/* A function that cannot be left alone comes to us for ever: the module stays, and calls pass. */
static void gs_hook_leave(bool is_left)
{
	lockdep_assert_held(&gs_hook_lock);
	if (!is_left)
		gs_hook_stays = true;
}

static void gs_hook_detach(enum gs_hook_state state)
{
	lockdep_assert_held(&gs_hook_lock);
	if (gs_hook.state == GS_HOOKED) {
		gs_pin_bar(false);
		gs_files_see(false);
		gs_hook_leave(gs_part_detach(GS_PART_UVM));
		gs_hook_leave(gs_divert_detach());
		gs_dma_buf_detach();
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

static void gs_display_notify(unsigned long action)
{
	mutex_lock(&gs_hook_lock);
	if (action == MODULE_STATE_COMING)
		gs_part_attach(GS_PART_DISPLAY);
	else if (action == MODULE_STATE_GOING)
		gs_hook_leave(gs_part_detach(GS_PART_DISPLAY));
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
	if (gs_hook.state == GS_WAITING && gs_site_of(GS_DRIVER, "nvidia_close")) {
		gs_hook.is_driver_here = true;
		gs_hook_attach();
	}
	gs_part_attach(GS_PART_DISPLAY);
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
	gs_hook_leave(gs_part_detach(GS_PART_DISPLAY));
	mutex_unlock(&gs_hook_lock);
	cancel_work_sync(&gs_hook_loss);
	/* The driver would call into memory that is free. Only a restart of the machine helps. */
	while (WARN_ON_ONCE(gs_hook_stays))
		schedule_timeout_uninterruptible(MAX_SCHEDULE_TIMEOUT);
	gs_divert_exit();
	synchronize_rcu_tasks();
	gs_hook_forget(); /* what calls left that ended after a drain */
}
