/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The pin makes the driver act on what the filter decided on. The driver copies an argument, and
 * the parameters that it points to, from the caller's memory once more after the filter did.
 * Another thread may have changed both in between, or may change the answer before the filter reads
 * it. So RM is given the filter's own copies, and answers into them. hook/hook.c attaches the pin;
 * the filter makes its calls through gs_call_driver() in driver/call.h.
 */
#ifndef GPUSHARE_PIN_H
#define GPUSHARE_PIN_H

#include <linux/types.h>

struct gs_call;

int gs_pin_attach(const char *driver, void (*on_miss)(void));
void gs_pin_detach(void);
bool gs_pin_is_armed(void);
void gs_pin_bar(bool is_barring);
struct gs_call *gs_pin_current(void);
bool gs_pin_bars_unseen(void);

#endif /* GPUSHARE_PIN_H */
