// SPDX-License-Identifier: GPL-2.0
/* Processes that change their tenant, with what they hold. */
#include "compat/version.h"
#include "members/fork.h"
#include "members/moves.h"

#define GS_MOVES_AT_A_TIME 64 /* before others may have gs_lock */

/* Counts what a process holds in another tenant. What is above both holds it all the time. */
static void gs_process_recount(struct gs_process *process, struct gs_tenant *tenant)
{
	struct gs_counter *from = &process->tenant->counter, *to = &tenant->counter;
	struct gs_counter *common = gs_counter_common(from, to);
	u32 i;

	lockdep_assert_held(&process->lock);
	for (i = 0; i < GPUSHARE_MAX_GPUS; i++)
		gs_counter_add_memory(to, common, i, process->memory[i]);
	gs_counter_hold_memory(to, common, process->memory_held);
	gs_counter_hold_memory(from, common, -process->memory_held);
	for (i = 0; i < GPUSHARE_MAX_GPUS; i++)
		gs_counter_add_memory(from, common, i, -process->memory[i]);
	gs_counter_add_contexts(to, common, process->contexts);
	gs_counter_add_contexts(from, common, -(s64)process->contexts);
}

/**
 * gs_process_move() - Put a process and the memory that it holds into another tenant.
 * @process: The process.
 * @tenant: A tenant that is linked.
 * @is_attached: It was chosen by name. A child that is forked meanwhile inherits both or none.
 */
void gs_process_move(struct gs_process *process, struct gs_tenant *tenant, bool is_attached)
{
	struct gpushare_event event gs_uninitialized;

	lockdep_assert_held(&gs_lock);
	if (process->tenant == tenant) {
		WRITE_ONCE(process->is_attached, is_attached);
		return;
	}
	process->tenant->processes_count--;
	tenant->processes_count++;
	spin_lock(&process->lock);
	gs_process_recount(process, tenant);
	raw_spin_lock(&gs_processes_lock);
	process->tenant = tenant;
	WRITE_ONCE(process->is_attached, is_attached);
	raw_spin_unlock(&gs_processes_lock);
	spin_unlock(&process->lock);
	list_move_tail(&process->tenant_node, &tenant->processes);
	if (!process->is_opened)
		return;
	gs_event_init(&event, GPUSHARE_EVENT_PROCESS_MOVED);
	strscpy(event.moved.tenant, tenant->name, sizeof(event.moved.tenant));
	gs_event_send(&event, &process->id);
}

/**
 * gs_processes_leave() - Put every process of a tenant into the default tenant.
 * @tenant: A tenant that is not linked any more. The processes of the default tenant stay in it.
 *
 * gs_lock is let go of meanwhile if there are many.
 */
void gs_processes_leave(struct gs_tenant *tenant)
{
	struct gs_process *process;
	unsigned int moved = 0;

	lockdep_assert_held(&gs_lock);
	if (tenant == gs_tenant_default)
		return;
	do { /* Until none was forked meanwhile whose parent had not moved yet. */
		while (!list_empty(&tenant->processes)) {
			process = list_first_entry(&tenant->processes, struct gs_process,
						   tenant_node);
			gs_process_move(process, gs_tenant_default, false);
			if (++moved % GS_MOVES_AT_A_TIME == 0)
				gs_lock_rest(&gs_lock);
		}
	} while (gs_processes_link_forked());
}
