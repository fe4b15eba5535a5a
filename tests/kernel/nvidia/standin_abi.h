/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What only the stand-in driver understands: the control by which a test's program says that it has
 * work for the GPU. Everything else is as with the real driver (intercept/nvrm/abi.h).
 */
#ifndef STANDIN_ABI_H
#define STANDIN_ABI_H

#include "intercept/nvrm/abi.h"

/*
 * This control, on a channel, begins or ends its work. A group runs while an unfrozen channel of it
 * has work.
 */
#define STANDIN_CTRL_SET_BUSY 0x5A5A0001u
struct standin_busy {
	gs_u32 is_busy;
};

#endif /* STANDIN_ABI_H */
