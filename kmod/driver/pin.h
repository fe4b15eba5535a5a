/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What was decided on is what the driver acts on. The driver copies an argument from the caller's
 * memory once more, after the filter did, and the parameters that it points to as well; another
 * thread may have changed both in between, or may change the answer before the filter reads it. So
 * RM is given the filter's own copies, and answers into them.
 */
#ifndef GPUSHARE_PIN_H
#define GPUSHARE_PIN_H

#include <linux/atomic.h>
#include <linux/types.h>

extern atomic_t gs_pins_with_params; /* calls in progress whose parameters are pinned */

int gs_pin_attach(const char *driver);
void gs_pin_detach(void);
void gs_pin_bar(bool is_barring);

#endif /* GPUSHARE_PIN_H */
