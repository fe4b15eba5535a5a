/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is diverted apart from the rest of the driver, because a release may lack it. hook.c calls
 * all of this with its lock.
 */
#ifndef GPUSHARE_PARTS_H
#define GPUSHARE_PARTS_H

#include "driver/divert.h"

void gs_part_attach(enum gs_part part);
bool gs_part_detach(enum gs_part part);

#endif /* GPUSHARE_PARTS_H */
