/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Watches RM take and give back names of its own for memory in DMA buffers: state/buffered.h.
 * hook/hook.c attaches it after the pin and detaches it before.
 */
#ifndef GPUSHARE_DMA_BUF_H
#define GPUSHARE_DMA_BUF_H

#include <linux/types.h>

void gs_dma_buf_attach(const char *driver);
void gs_dma_buf_detach(void);
bool gs_dma_buf_is_watched(void);

#endif /* GPUSHARE_DMA_BUF_H */
