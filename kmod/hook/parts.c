// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kernel.h>

#include "hook/parts.h"
#include "hook/sites.h"

/* What nvidia_uvm calls is in nvidia. Of nvidia_drm's functions a release may have only some. */
static const struct gs_part_function {
	enum gs_part part;
	enum gs_site site;
	const char *module;
	const char *name;
} gs_part_functions[] = {
	{ GS_PART_DISPLAY, GS_SITE_DISPLAY, GS_DISPLAY_DRIVER,
	  "nv_drm_gem_alloc_nvkms_memory_ioctl" },
	{ GS_PART_DISPLAY, GS_SITE_DISPLAY_DUMB, GS_DISPLAY_DRIVER, "nv_drm_dumb_create" },
	{ GS_PART_DISPLAY, GS_SITE_DISPLAY_IMPORT, GS_DISPLAY_DRIVER,
	  "nv_drm_gem_import_nvkms_memory_ioctl" },
	{ GS_PART_UVM, GS_SITE_UVM_DUP, GS_DRIVER, "nvUvmInterfaceDupMemory" },
	{ GS_PART_UVM, GS_SITE_UVM_FREE, GS_DRIVER, "nvUvmInterfaceFreeDupedHandle" },
};

static const char *const gs_part_names[GS_PARTS] = {
	[GS_PART_DISPLAY] = "memory of nvidia_drm",
	[GS_PART_UVM] = "memory that nvidia_uvm keeps",
};

static bool gs_part_is_attached[GS_PARTS];

/* Fills in gs_sites[]. Returns how many functions of a part there are; @missing: how many not. */
static unsigned int gs_part_find(enum gs_part part, unsigned int *missing)
{
	const struct gs_part_function *function;
	unsigned int i, found = 0;

	*missing = 0;
	for (i = 0; i < ARRAY_SIZE(gs_part_functions); i++) {
		function = &gs_part_functions[i];
		if (function->part != part)
			continue;
		gs_sites[function->site] = gs_site_of(function->module, function->name);
		if (gs_sites[function->site])
			found++;
		else
			(*missing)++;
	}
	return found;
}

/**
 * gs_part_attach() - Divert the functions of a part.
 * @part: The part; nothing is done if it is attached. Of nvidia_drm, which may not be there, it is
 *	those that there are. Names that nvidia_uvm takes must be seen to come and to go.
 */
void gs_part_attach(enum gs_part part)
{
	unsigned int found, missing;
	int err;

	if (gs_part_is_attached[part])
		return;
	found = gs_part_find(part, &missing);
	if (part == GS_PART_DISPLAY && !found)
		return;
	err = part == GS_PART_UVM && missing ? -ENOENT : gs_divert_part_attach(part);
	gs_part_is_attached[part] = !err;
	if (err)
		pr_warn("%s is not watched (%d)\n", gs_part_names[part], err);
}

/**
 * gs_part_detach() - Stop diverting them.
 * @part: The part; nothing is done if it is not attached.
 *
 * Return: False if calls still come to us, so that the module must stay.
 */
bool gs_part_detach(enum gs_part part)
{
	bool was_attached = gs_part_is_attached[part];

	gs_part_is_attached[part] = false;
	return !was_attached || gs_divert_part_detach(part);
}
