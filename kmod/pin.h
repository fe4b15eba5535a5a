/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What was decided on is what the driver acts on. The driver copies an argument from the caller's
 * memory once more, after the filter did, and another thread may have changed it in between, or may
 * change the answer before the filter reads it; so RM is given the filter's own copy.
 */
#ifndef GPUSHARE_PIN_H
#define GPUSHARE_PIN_H

#include <linux/types.h>

struct gs_call;

extern bool gs_pin_is_attached;

int gs_pin_attach(const char *driver);
void gs_pin_detach(void);
void gs_pin_begin(struct gs_call *call);
void gs_pin_end(struct gs_call *call);

#endif /* GPUSHARE_PIN_H */
