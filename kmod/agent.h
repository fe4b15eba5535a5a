/* SPDX-License-Identifier: GPL-2.0 */
/* Who the agent is: the one process, with its descendants, that is refused nothing. */
#ifndef GPUSHARE_AGENT_H
#define GPUSHARE_AGENT_H

#include <linux/types.h>

void gs_agent_register(void);
void gs_agent_forget(void);
bool gs_agent_includes_current(void);
pid_t gs_agent_pid(void);

#endif /* GPUSHARE_AGENT_H */
