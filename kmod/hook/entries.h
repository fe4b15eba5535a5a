/* SPDX-License-Identifier: GPL-2.0 */
/* What runs instead of a diverted function of the driver; driver/divert.h says who calls it. */
#ifndef GPUSHARE_ENTRIES_H
#define GPUSHARE_ENTRIES_H

#include <linux/jump_label.h>

/* Calls pass unseen, except the ends of files and of names. hook.c sets it under its lock. */
DECLARE_STATIC_KEY_FALSE(gs_hook_drained);

#endif /* GPUSHARE_ENTRIES_H */
