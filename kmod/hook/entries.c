// SPDX-License-Identifier: GPL-2.0
/*
 * What runs instead of a diverted function of the driver, and the choice whether it does. A task
 * may sleep for long in the driver, below a function here. gs_hook_choose() takes a reference on
 * the module before it diverts, and the function drops it last.
 */
#include <linux/fs.h>
#include <linux/uaccess.h>

#include "compat/version.h"
#include "driver/divert.h"
#include "filter/filter.h"
#include "hook/entries.h"
#include "rm/interest.h"
#include "state/client.h"
#include "state/file.h"

DEFINE_STATIC_KEY_FALSE(gs_hook_drained);

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

static __always_inline int gs_hook_display_at(unsigned long a0, unsigned long a1, unsigned long a2,
					      enum gs_site site)
{
	int ret = gs_filter_display();

	if (!ret)
		ret = gs_divert_original(a0, a1, a2, gs_sites[site]);
	gs_module_put();
	return ret;
}

static int gs_hook_display(unsigned long device, unsigned long argument, unsigned long file)
{
	return gs_hook_display_at(device, argument, file, GS_SITE_DISPLAY);
}

static int gs_hook_display_dumb(unsigned long file, unsigned long device, unsigned long argument)
{
	return gs_hook_display_at(file, device, argument, GS_SITE_DISPLAY_DUMB);
}

static int gs_hook_display_import(unsigned long device, unsigned long argument, unsigned long file)
{
	return gs_hook_display_at(device, argument, file, GS_SITE_DISPLAY_IMPORT);
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

static void *const gs_entries[] = {
	[GS_SITE_IOCTL] = gs_hook_ioctl,
	[GS_SITE_COMPAT] = gs_hook_compat,
	[GS_SITE_OPEN] = gs_hook_open,
	[GS_SITE_RELEASE] = gs_hook_release,
	[GS_SITE_DISPLAY] = gs_hook_display,
	[GS_SITE_DISPLAY_DUMB] = gs_hook_display_dumb,
	[GS_SITE_DISPLAY_IMPORT] = gs_hook_display_import,
};

static __always_inline unsigned long gs_hook_with_reference(unsigned long site)
{
	unsigned int i;

	if (!gs_module_try_get())
		return 0;
	if (site == gs_sites[GS_SITE_IOCTL])
		return (unsigned long)gs_hook_ioctl;
	for (i = 0; i < ARRAY_SIZE(gs_entries); i++) {
		if (gs_entries[i] && site == gs_sites[i])
			return (unsigned long)gs_entries[i];
	}
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
