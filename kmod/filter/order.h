/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the verdicts begin and end with a call. gs_lock is held from the one to the other, except
 * while the driver works. Calls that make or free something of a client take turns.
 */
#ifndef GPUSHARE_ORDER_H
#define GPUSHARE_ORDER_H

struct gs_call;

int gs_call_enter(struct gs_call *call);
int gs_call_enter_in_order(struct gs_call *call);
long gs_call_not_entered(const struct gs_call *call, int err);
void gs_call_leave(struct gs_call *call);

#endif /* GPUSHARE_ORDER_H */
