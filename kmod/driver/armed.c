// SPDX-License-Identifier: GPL-2.0
#include <linux/kprobes.h>

#include "driver/armed.h"

/*
 * It is no bool: in kernels that are built with -fsanitize=bool (Ubuntu's are) GCC makes an
 * ordinary read of READ_ONCE() of one, and leaves it out because it sees nobody write to this.
 */
static int gs_armed_was_hit;

/* It has no entry of ftrace's, so the probe is of the same kind as those in RM. */
static noinline notrace void gs_armed_target(void)
{
	asm volatile("nop");
}

static int gs_armed_hit(struct kprobe *probe, struct pt_regs *regs)
{
	WRITE_ONCE(gs_armed_was_hit, 1);
	return 0;
}

static struct kprobe gs_armed_probe;

/**
 * gs_armed_attach() - Set the probe.
 *
 * Return: 0 or a negative errno.
 */
int gs_armed_attach(void)
{
	gs_armed_probe = (struct kprobe){
		.addr = (kprobe_opcode_t *)gs_armed_target,
		.pre_handler = gs_armed_hit,
	};
	return register_kprobe(&gs_armed_probe);
}

/**
 * gs_armed_detach() - Remove it.
 */
void gs_armed_detach(void)
{
	unregister_kprobe(&gs_armed_probe);
}

/**
 * gs_armed_is_so() - Do probes work?
 *
 * Return: False if they are disarmed.
 */
bool gs_armed_is_so(void)
{
	WRITE_ONCE(gs_armed_was_hit, 0);
	gs_armed_target();
	return READ_ONCE(gs_armed_was_hit);
}
