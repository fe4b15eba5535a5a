/* SPDX-License-Identifier: GPL-2.0 */
/* The agent: one registered process that is refused nothing, and neither are its descendants. */
#ifndef GPUSHARE_AGENT_H
#define GPUSHARE_AGENT_H

#include <linux/compiler.h>
#include <linux/types.h>

struct pid;

void gs_agent_register(void);
void gs_agent_forget(void);
bool gs_agent_is_above_current(void);
pid_t gs_agent_pid(void);

extern struct pid *gs_agent; /* It is compared and never dereferenced: agent.c says why. */

/**
 * gs_agent_includes_current() - Is the caller the agent or one of its descendants?
 *
 * Return: True if it is. A descendant whose parent has died is not, because nothing shows its
 * descent.
 */
static inline bool gs_agent_includes_current(void)
{
	return READ_ONCE(gs_agent) && gs_agent_is_above_current();
}

#endif /* GPUSHARE_AGENT_H */
