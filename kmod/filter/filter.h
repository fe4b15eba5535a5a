/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The filter: every ioctl of the driver that is of interest passes gs_filter_ioctl(), which
 * hook/entries.c calls in the caller's context.
 */
#ifndef GPUSHARE_FILTER_H
#define GPUSHARE_FILTER_H

struct file;

long gs_filter_ioctl(struct file *file, unsigned int cmd, unsigned long arg, unsigned long driver);
int gs_filter_display(void);
unsigned long gs_filter_uvm_dup(unsigned long device, unsigned long client, unsigned long memory,
				unsigned long name, unsigned long info);
unsigned long gs_filter_uvm_free(unsigned long device, unsigned long name);

#endif /* GPUSHARE_FILTER_H */
