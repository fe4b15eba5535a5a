/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is done about a call, by its kind. filter.c calls these without gs_lock, and each returns
 * what the ioctl returns.
 */
#ifndef GPUSHARE_VERDICTS_H
#define GPUSHARE_VERDICTS_H

struct gs_call;

long gs_filter_client(struct gs_call *call);
long gs_filter_alloc(struct gs_call *call);
long gs_filter_dup(struct gs_call *call);
long gs_filter_free(struct gs_call *call);
long gs_filter_control(struct gs_call *call);
long gs_filter_carry(struct gs_call *call);
long gs_filter_dma_buf(struct gs_call *call);
long gs_filter_register(struct gs_call *call);

#endif /* GPUSHARE_VERDICTS_H */
