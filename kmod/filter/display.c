// SPDX-License-Identifier: GPL-2.0
/*
 * Video memory that nvidia_drm makes for a program inside the kernel. The module does not see it
 * being freed, so it cannot count it.
 */
#include "filter/filter.h"
#include "members/current.h"
#include "news/agent.h"

/**
 * gs_filter_display() - May the caller have memory that is not counted?
 *
 * Return: 0, or -ENOMEM if its tenant has a limit.
 */
int gs_filter_display(void)
{
	struct gs_process *process;
	int err = -ENOMEM;

	if (gs_agent_includes_current())
		return 0;
	mutex_lock(&gs_lock);
	process = gs_process_of_current();
	if (!process)
		goto unlock;
	if (!gs_counter_is_limited(&process->tenant->counter))
		err = 0;
	else
		gs_counter_refused_memory(&process->tenant->counter);
	gs_process_put(process);
unlock:
	mutex_unlock(&gs_lock);
	return err;
}
