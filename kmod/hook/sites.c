// SPDX-License-Identifier: GPL-2.0
#include <linux/ftrace.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>

#include "driver/divert.h"
#include "hook/sites.h"

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

/**
 * gs_site_of() - Find the place of a function for gs_sites[].
 * @module: The module that has it.
 * @name: Its name.
 *
 * A probe at a symbol gives its address, which modules cannot look up otherwise.
 *
 * Return: Where it goes on behind its call of ftrace; 0 if there is none that ftrace calls.
 */
unsigned long gs_site_of(const char *module, const char *name)
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

/**
 * gs_sites_find() - Find the functions without which the driver cannot be hooked.
 * @name: Out: the name of the driver's ioctl.
 *
 * They come into gs_sites[].
 *
 * Return: NULL, or what was not found.
 */
const char *gs_sites_find(const char **name)
{
	const struct gs_ioctl_names *names = gs_ioctl_names;

	gs_sites[GS_SITE_IOCTL] = gs_site_of(GS_DRIVER, names->name);
	if (!gs_sites[GS_SITE_IOCTL]) {
		names++;
		gs_sites[GS_SITE_IOCTL] = gs_site_of(GS_DRIVER, names->name);
	}
	if (!gs_sites[GS_SITE_IOCTL])
		return "the driver's ioctl was not found";
	*name = names->name;
	gs_sites[GS_SITE_COMPAT] = names->compat ? gs_site_of(GS_DRIVER, names->compat) : 0;
	gs_sites[GS_SITE_OPEN] = gs_site_of(GS_DRIVER, "nvidia_open");
	gs_sites[GS_SITE_RELEASE] = gs_site_of(GS_DRIVER, "nvidia_close");
	if (!gs_sites[GS_SITE_OPEN] || !gs_sites[GS_SITE_RELEASE])
		return "the driver's open or release was not found";
	gs_sites[GS_SITE_COPY_IN] = gs_site_of(GS_DRIVER, "os_memcpy_from_user");
	gs_sites[GS_SITE_COPY_OUT] = gs_site_of(GS_DRIVER, "os_memcpy_to_user");
	if (!gs_sites[GS_SITE_COPY_IN] || !gs_sites[GS_SITE_COPY_OUT])
		return "the driver's copying of parameters was not found";
	return NULL;
}
