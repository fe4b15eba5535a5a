/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the verdicts begin and end with a call. Calls that make or free something of a client take
 * turns: its order is held from the one to the other, also while the driver works. No other lock is
 * held when these return.
 */
#ifndef GPUSHARE_ORDER_H
#define GPUSHARE_ORDER_H

#include <linux/types.h>

struct gs_call;

int gs_call_enter(struct gs_call *call);
bool gs_call_find_own(struct gs_call *call);
void gs_call_leave(struct gs_call *call);

int gs_call_enter_in_order(struct gs_call *call);
long gs_call_not_entered(const struct gs_call *call, int err);
void gs_call_leave_in_order(struct gs_call *call);

#endif /* GPUSHARE_ORDER_H */
