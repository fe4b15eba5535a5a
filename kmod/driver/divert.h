/* SPDX-License-Identifier: GPL-2.0 */
/* Functions of the driver that are diverted, and how they are called all the same. */
#ifndef GPUSHARE_DIVERT_H
#define GPUSHARE_DIVERT_H

#include <linux/types.h>

struct gs_call;

/**
 * enum gs_site - a function of the driver
 * @GS_SITE_IOCTL: its file operation
 * @GS_SITE_COMPAT: the same for 32-bit programs, where that is a function of its own
 * @GS_SITE_RELEASE: at the end of a file
 * @GS_SITE_COPY_IN: os_memcpy_from_user(to, from, bytes): RM reads parameters
 * @GS_SITE_COPY_OUT: os_memcpy_to_user(to, from, bytes): RM answers there
 * @GS_SITES: how many
 */
enum gs_site {
	GS_SITE_IOCTL,
	GS_SITE_COMPAT,
	GS_SITE_RELEASE,
	GS_SITE_COPY_IN,
	GS_SITE_COPY_OUT,
	GS_SITES,
};

/* Where each goes on behind its call of ftrace; 0 for one that is not diverted. */
extern unsigned long gs_sites[GS_SITES];

int gs_divert_attach(void);
void gs_divert_detach(void);
void gs_divert_exit(void);

/* Calls a diverted function as it was called, with @site of gs_sites[]; returns what it returns. */
unsigned long gs_divert_original(unsigned long a0, unsigned long a1, unsigned long a2,
				 unsigned long site);

/*
 * What is asked at the beginning of a diverted function. Must not sleep.
 *
 * hook.c, of a file operation, with its arguments and its place in gs_sites[]: the address of the
 * function to be run instead, or 0 for the driver's.
 */
unsigned long gs_hook_choose(unsigned long a0, unsigned long a1, unsigned long a2,
			     unsigned long site);

/*
 * pin.c, of os_memcpy_from_user(to, from, bytes): the call whose parameters these are, for which
 * gs_pin_copy_in() is run instead; NULL for none. And of os_memcpy_to_user(to, from, bytes).
 */
struct gs_call *gs_pin_of_params(unsigned long from);
unsigned long gs_pin_copy_in(unsigned long to, unsigned long from, unsigned long bytes,
			     struct gs_call *call);
void gs_pin_copy_out(unsigned long to, unsigned long from, unsigned long bytes);

#endif /* GPUSHARE_DIVERT_H */
