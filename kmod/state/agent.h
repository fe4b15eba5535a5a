/* SPDX-License-Identifier: GPL-2.0 */
/* Who the agent is: the one process, with its descendants, that is refused nothing. */
#ifndef GPUSHARE_AGENT_H
#define GPUSHARE_AGENT_H

#include <linux/compiler.h>
#include <linux/types.h>

struct pid;

void gs_agent_register(void);
void gs_agent_forget(void);
bool gs_agent_is_above_current(void);
pid_t gs_agent_pid(void);

extern struct pid *gs_agent; /* compared only, see agent.c */

/**
 * gs_agent_includes_current() - is the caller the agent or a descendant of it?
 *
 * Return: true when it is. A descendant whose parent died is not: nobody vouches for it.
 */
static inline bool gs_agent_includes_current(void)
{
	return READ_ONCE(gs_agent) && gs_agent_is_above_current();
}

#endif /* GPUSHARE_AGENT_H */
