/* SPDX-License-Identifier: GPL-2.0 */
/* The device /dev/gpushare, which main.c makes and removes. */
#ifndef GPUSHARE_CHARDEV_H
#define GPUSHARE_CHARDEV_H

int gs_chardev_init(void);
void gs_chardev_exit(void);

#endif /* GPUSHARE_CHARDEV_H */
