// SPDX-License-Identifier: GPL-2.0
/*
 * ftrace calls gs_divert_file() or gs_divert_copy() at the beginning of each diverted function,
 * directly: no registers are saved but the arguments, nothing is looked up, so a call that is of no
 * interest costs little. On the stack are then the way on in the driver's function and the way back
 * to its caller; to have another function run instead, the first is overwritten.
 */
#include <linux/ftrace.h>
#include <linux/objtool.h>

#include "divert.h"
#include "pin.h"
#include "version.h"

#if !defined(CONFIG_X86_64) || !defined(CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)
#error "gpushare.ko needs x86-64 and a kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"
#endif

#include <asm/ibt.h>
#include <asm/linkage.h>

unsigned long gs_sites[GS_SITES];

void gs_divert_file(void);
void gs_divert_copy(void);

/*
 * A copy of parameters comes by with every second call: while nobody has pinned any, it is told
 * here that there is nothing to do. A way that was put on the stack and is returned to needs no
 * landing pad of indirect branch tracking, and no retpoline.
 */
/* clang-format off */
asm(".pushsection .text, \"ax\", @progbits\n"
	".type gs_divert_copy, @function\n"
	".globl gs_divert_copy\n"
	"gs_divert_copy:\n"
	ASM_ENDBR
	"	cmpl	$0, gs_pins_with_params(%rip)\n"
	"	jne	1f\n"
	"	" ASM_RET
	".size gs_divert_copy, . - gs_divert_copy\n"

	".type gs_divert_file, @function\n"
	".globl gs_divert_file\n"
	"gs_divert_file:\n"
	ASM_ENDBR
	"1:	pushq	%rdi\n"
	"	pushq	%rsi\n"
	"	pushq	%rdx\n"
	"	movq	24(%rsp), %rcx\n"
	"	call	gs_hook_choose\n"
	"	popq	%rdx\n"
	"	popq	%rsi\n"
	"	popq	%rdi\n"
	"	testq	%rax, %rax\n"
	"	jnz	2f\n"
	"	" ASM_RET
	"2:	movq	%rax, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_file, . - gs_divert_file\n"

	".type gs_divert_original, @function\n"
	".globl gs_divert_original\n"
	"gs_divert_original:\n"
	ASM_ENDBR
	"	pushq	%rcx\n"
	"	" ASM_RET
	".size gs_divert_original, . - gs_divert_original\n"
	".popsection\n");
/* clang-format on */
STACK_FRAME_NON_STANDARD(gs_divert_copy);
STACK_FRAME_NON_STANDARD(gs_divert_file);
STACK_FRAME_NON_STANDARD(gs_divert_original);

static struct gs_diversion {
	struct ftrace_ops ops;
	void (*entry)(void);
	enum gs_site first, last;
} gs_diversions[] = {
	{ .entry = gs_divert_copy, .first = GS_SITE_COPY_IN, .last = GS_SITE_COPY_OUT },
	{ .entry = gs_divert_file, .first = GS_SITE_IOCTL, .last = GS_SITE_RELEASE },
};

static int gs_diversion_attach(struct gs_diversion *diversion)
{
	int err = 0, reset = 1;
	enum gs_site site;

	for (site = diversion->first; site <= diversion->last && !err; site++) {
		if (!gs_sites[site])
			continue;
		err = ftrace_set_filter_ip(&diversion->ops, gs_sites[site] - MCOUNT_INSN_SIZE, 0,
					   reset);
		reset = 0;
	}
	return err ?: gs_ftrace_register_direct(&diversion->ops, (unsigned long)diversion->entry);
}

static void gs_diversion_detach(struct gs_diversion *diversion)
{
	gs_ftrace_unregister_direct(&diversion->ops, (unsigned long)diversion->entry);
}

/**
 * gs_divert_attach() - from now on gs_hook_choose() is asked at each of gs_sites[]
 *
 * Return: 0, -EBUSY when another module diverts one of them, or another negative errno.
 */
int gs_divert_attach(void)
{
	int err = gs_diversion_attach(&gs_diversions[0]);

	if (err)
		return err;
	err = gs_diversion_attach(&gs_diversions[1]);
	if (err)
		gs_diversion_detach(&gs_diversions[0]);
	return err;
}

/**
 * gs_divert_detach() - it is asked no more; those that it is being asked for may still be inside
 */
void gs_divert_detach(void)
{
	gs_diversion_detach(&gs_diversions[1]);
	gs_diversion_detach(&gs_diversions[0]);
}

/**
 * gs_divert_exit() - free what ftrace keeps; there is no attaching any more
 */
void gs_divert_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gs_diversions); i++)
		ftrace_free_filter(&gs_diversions[i].ops);
}
