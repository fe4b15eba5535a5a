/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of the driver that are diverted, and how they are called all the same. */
#ifndef GPUSHARE_DIVERT_H
#define GPUSHARE_DIVERT_H

#include <linux/atomic.h>
#include <linux/types.h>

struct gs_call;

/**
 * enum gs_site - A function of the driver.
 * @GS_SITE_IOCTL: Its file operation.
 * @GS_SITE_COMPAT: The same for 32-bit programs, if that is a function of its own.
 * @GS_SITE_OPEN: What it does at the beginning of a file.
 * @GS_SITE_RELEASE: What it does at the end of a file.
 * @GS_SITE_COPY_IN: os_memcpy_from_user(to, from, bytes), by which RM reads parameters.
 * @GS_SITE_COPY_OUT: os_memcpy_to_user(to, from, bytes), by which RM answers there.
 * @GS_SITE_DISPLAY: nv_drm_gem_alloc_nvkms_memory_ioctl(device, argument, file) of nvidia_drm,
 *	which makes video memory inside the kernel. It is attached apart from the others, and so are
 *	the next two.
 * @GS_SITE_DISPLAY_DUMB: nv_drm_dumb_create(file, device, argument), which makes some, too.
 * @GS_SITE_DISPLAY_IMPORT: nv_drm_gem_import_nvkms_memory_ioctl(device, argument, file), which
 *	keeps what a program has made.
 * @GS_SITE_UVM_DUP: nvUvmInterfaceDupMemory(device, client, memory, name, info), by which
 *	nvidia_uvm takes a second name for memory that it maps. It is attached apart from the
 *	others, and so is the next one.
 * @GS_SITE_UVM_FREE: nvUvmInterfaceFreeDupedHandle(device, name), by which it gives the name back.
 * @GS_SITES: The number of functions.
 */
enum gs_site {
	GS_SITE_IOCTL,
	GS_SITE_COMPAT,
	GS_SITE_OPEN,
	GS_SITE_RELEASE,
	GS_SITE_COPY_IN,
	GS_SITE_COPY_OUT,
	GS_SITE_DISPLAY,
	GS_SITE_DISPLAY_DUMB,
	GS_SITE_DISPLAY_IMPORT,
	GS_SITE_UVM_DUP,
	GS_SITE_UVM_FREE,
	GS_SITES,
};

/* Where each function goes on behind its call of ftrace; 0 if it is not diverted. */
extern unsigned long gs_sites[GS_SITES];

int gs_divert_attach(void);
bool gs_divert_detach(void);
void gs_divert_exit(void);

/**
 * enum gs_part - What is diverted apart from the rest, because the driver may lack it.
 * @GS_PART_DISPLAY: Those of GS_SITE_DISPLAY to GS_SITE_DISPLAY_IMPORT that there are.
 * @GS_PART_UVM: GS_SITE_UVM_DUP and GS_SITE_UVM_FREE.
 * @GS_PARTS: Their number.
 */
enum gs_part { GS_PART_DISPLAY, GS_PART_UVM, GS_PARTS };

int gs_divert_part_attach(enum gs_part part);
bool gs_divert_part_detach(enum gs_part part);

/*
 * Calls a diverted function with the arguments that it was called with, and returns what it
 * returns. @site is its place in gs_sites[].
 */
unsigned long gs_divert_original(unsigned long a0, unsigned long a1, unsigned long a2,
				 unsigned long site);
unsigned long gs_divert_original_of_five(unsigned long a0, unsigned long a1, unsigned long a2,
					 unsigned long a3, unsigned long a4, unsigned long site);

/*
 * What divert.c calls at the beginning of a diverted function. Others define these, and they must
 * not sleep. Its assembler calls them by name, because a table of functions would cost every ioctl
 * a retpoline.
 *
 * hook/entries.c defines what a file operation asks, with its arguments and its place in
 * gs_sites[]. It returns the address of the function that runs instead, or 0 for the driver's. The
 * other one does the same for a function of nvidia_uvm's.
 */
unsigned long gs_hook_choose(unsigned long a0, unsigned long a1, unsigned long a2,
			     unsigned long site);
unsigned long gs_hook_choose_uvm(unsigned long site);

/*
 * pin.c defines what the copies of parameters ask. gs_pins_with_params is the number of calls in
 * progress whose parameters are pinned; while it is 0 nothing is asked. gs_pin_of_params() returns
 * the call that the parameters at `from` belong to, for which gs_pin_copy_in() then runs instead of
 * os_memcpy_from_user(), or NULL. gs_pin_copy_out() looks at what os_memcpy_to_user() will copy.
 */
extern atomic_t gs_pins_with_params;
struct gs_call *gs_pin_of_params(unsigned long from);
unsigned long gs_pin_copy_in(unsigned long to, unsigned long from, unsigned long bytes,
			     struct gs_call *call);
void gs_pin_copy_out(unsigned long to, unsigned long from, unsigned long bytes);

#endif /* GPUSHARE_DIVERT_H */
