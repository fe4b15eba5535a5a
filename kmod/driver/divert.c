// SPDX-License-Identifier: GPL-2.0
/*
 * The diversion of driver functions. ftrace calls gs_divert_file(), or another of the entries
 * below, directly at the beginning of each diverted function. Only the arguments are saved and
 * nothing is looked up, so a call that is of no interest costs little. The stack then holds two
 * addresses: where the driver's function goes on, and where it returns to. To have another function
 * run instead, an entry overwrites the first one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/objtool.h>

#include "compat/version.h"
#include "driver/divert.h"

#if !defined(CONFIG_X86_64) || !defined(CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)
#error "gpushare.ko needs x86-64 and a kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"
#endif

#include <asm/ibt.h>
#include <asm/linkage.h>

unsigned long gs_sites[GS_SITES];

void gs_divert_file(void);
void gs_divert_uvm(void);
void gs_divert_copy_in(void);
void gs_divert_copy_out(void);

/*
 * Every second call copies parameters. While none are pinned the entries for the copies find out
 * here that there is nothing to do. An address that is put on the stack and returned to needs no
 * landing pad for indirect branch tracking, and no retpoline. It takes the place of an address that
 * a call has put there, so that every return has its call and the processor's predictor of returns
 * stays in step. What ftrace calls is aligned, because some kernels (7.0 is one) take an odd
 * address for one that is to be jumped to.
 */
/* clang-format off */
#define GS_SAVE_ARGUMENTS "	pushq	%rdi\n	pushq	%rsi\n	pushq	%rdx\n"
#define GS_RESTORE_ARGUMENTS "	popq	%rdx\n	popq	%rsi\n	popq	%rdi\n"
#define GS_ENTRY(name)             \
	"	.balign	16\n"        \
	"	.type " #name ", @function\n" \
	"	.globl " #name "\n" #name ":\n"
asm(".pushsection .text, \"ax\", @progbits\n"
	GS_ENTRY(gs_divert_copy_in)
	ASM_ENDBR
	"	cmpl	$0, gs_pins_with_params(%rip)\n"
	"	jne	1f\n"
	"	" ASM_RET
	"1:"	GS_SAVE_ARGUMENTS
	"	movq	%rsi, %rdi\n"
	"	call	gs_pin_of_params\n"
	GS_RESTORE_ARGUMENTS
	"	testq	%rax, %rax\n"
	"	jnz	2f\n"
	"	" ASM_RET
	"2:	movq	%rax, %rcx\n"
	"	movq	$gs_pin_copy_in, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_copy_in, . - gs_divert_copy_in\n"

	GS_ENTRY(gs_divert_copy_out)
	ASM_ENDBR
	"	cmpl	$0, gs_pins_with_params(%rip)\n"
	"	jne	1f\n"
	"	" ASM_RET
	"1:"	GS_SAVE_ARGUMENTS
	"	call	gs_pin_copy_out\n"
	GS_RESTORE_ARGUMENTS
	"	" ASM_RET
	".size gs_divert_copy_out, . - gs_divert_copy_out\n"

	GS_ENTRY(gs_divert_file)
	ASM_ENDBR
	GS_SAVE_ARGUMENTS
	"	movq	24(%rsp), %rcx\n"
	"	call	gs_hook_choose\n"
	GS_RESTORE_ARGUMENTS
	"	testq	%rax, %rax\n"
	"	jnz	1f\n"
	"	" ASM_RET
	"1:	movq	%rax, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_file, . - gs_divert_file\n"

	GS_ENTRY(gs_divert_uvm)
	ASM_ENDBR
	"	pushq	%r8\n"
	"	pushq	%rcx\n"
	GS_SAVE_ARGUMENTS
	"	movq	40(%rsp), %rdi\n"
	"	call	gs_hook_choose_uvm\n"
	GS_RESTORE_ARGUMENTS
	"	popq	%rcx\n"
	"	popq	%r8\n"
	"	testq	%rax, %rax\n"
	"	jnz	1f\n"
	"	" ASM_RET
	"1:	movq	%rax, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_uvm, . - gs_divert_uvm\n"

	".type gs_divert_original, @function\n"
	".globl gs_divert_original\n"
	"gs_divert_original:\n"
	ASM_ENDBR
	"	call	1f\n"
	"	int3\n"
	"1:	movq	%rcx, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_original, . - gs_divert_original\n"

	".type gs_divert_original_of_five, @function\n"
	".globl gs_divert_original_of_five\n"
	"gs_divert_original_of_five:\n"
	ASM_ENDBR
	"	call	1f\n"
	"	int3\n"
	"1:	movq	%r9, (%rsp)\n"
	"	" ASM_RET
	".size gs_divert_original_of_five, . - gs_divert_original_of_five\n"
	".popsection\n");
/* clang-format on */
STACK_FRAME_NON_STANDARD(gs_divert_copy_in);
STACK_FRAME_NON_STANDARD(gs_divert_copy_out);
STACK_FRAME_NON_STANDARD(gs_divert_file);
STACK_FRAME_NON_STANDARD(gs_divert_uvm);
STACK_FRAME_NON_STANDARD(gs_divert_original);
STACK_FRAME_NON_STANDARD(gs_divert_original_of_five);

static struct gs_diversion {
	struct ftrace_ops ops;
	void (*entry)(void);
	enum gs_site first, last;
} gs_diversions[] = {
	{ .entry = gs_divert_copy_in, .first = GS_SITE_COPY_IN, .last = GS_SITE_COPY_IN },
	{ .entry = gs_divert_copy_out, .first = GS_SITE_COPY_OUT, .last = GS_SITE_COPY_OUT },
	{ .entry = gs_divert_file, .first = GS_SITE_IOCTL, .last = GS_SITE_RELEASE },
};

static struct gs_diversion gs_parts[GS_PARTS] = {
	[GS_PART_DISPLAY] = { .entry = gs_divert_file,
			      .first = GS_SITE_DISPLAY,
			      .last = GS_SITE_DISPLAY_IMPORT },
	[GS_PART_UVM] = { .entry = gs_divert_uvm,
			  .first = GS_SITE_UVM_DUP,
			  .last = GS_SITE_UVM_FREE },
};

/* Lets @ops be about these functions, as far as the driver has them. */
static int gs_sites_choose(struct ftrace_ops *ops, enum gs_site first, enum gs_site last)
{
	int err = 0, reset = 1;
	enum gs_site site;

	for (site = first; site <= last && !err; site++) {
		if (!gs_sites[site])
			continue;
		err = ftrace_set_filter_ip(ops, gs_sites[site] - MCOUNT_INSN_SIZE, 0, reset);
		reset = 0;
	}
	return err;
}

static int gs_diversion_attach(struct gs_diversion *diversion)
{
	int err = gs_sites_choose(&diversion->ops, diversion->first, diversion->last);

	return err ?: gs_ftrace_register_direct(&diversion->ops, (unsigned long)diversion->entry);
}

/* Returns false if calls still come to us, because ftrace has switched itself off after a fault. */
static bool gs_diversion_detach(struct gs_diversion *diversion)
{
	int err = gs_ftrace_unregister_direct(&diversion->ops, (unsigned long)diversion->entry);

	if (err)
		pr_err("a function of the driver cannot be left alone any more (%d)\n", err);
	return !err;
}

/* Detaches the first @count, in the reverse of the order in which they were attached. */
static bool gs_diversions_detach(unsigned int count)
{
	bool is_detached = true;

	while (count--)
		is_detached &= gs_diversion_detach(&gs_diversions[count]);
	return is_detached;
}

/*
 * While it is registered kernel.ftrace_enabled cannot be set to 0, which would let calls pass
 * unseen into the probe that bars those. ftrace does not keep the flag in what is registered for
 * direct calls, so it is on this function of our own, which is never called.
 */
static noinline void gs_divert_guarded(void)
{
	barrier();
}

static void gs_divert_guard(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			    struct ftrace_regs *regs)
{
}

static struct ftrace_ops gs_guard = { .func = gs_divert_guard, .flags = FTRACE_OPS_FL_PERMANENT };

static int gs_guard_attach(void)
{
	int err = ftrace_set_filter_ip(&gs_guard, (unsigned long)gs_divert_guarded, 0, 1);

	if (!err)
		err = register_ftrace_function(&gs_guard);
	return err == -EBUSY ? -EOPNOTSUPP : err;
}

static struct ftrace_ops gs_trial = { .func = gs_divert_guard, .flags = FTRACE_OPS_FL_IPMODIFY };

/*
 * Finds out whether anybody else diverts one of these functions: returns -EBUSY then. The kernel
 * would say so too when it is asked to divert them, but some (6.14 is one) remember that they were
 * asked, and refuse it from then on, also when the other one has gone.
 */
static int gs_sites_try(enum gs_site first, enum gs_site last)
{
	int err = gs_sites_choose(&gs_trial, first, last);

	if (!err)
		err = register_ftrace_function(&gs_trial);
	return err ?: unregister_ftrace_function(&gs_trial);
}

/**
 * gs_divert_attach() - Let the functions of gs_sites[] be diverted from now on.
 *
 * Return: 0, -EBUSY if another module or BPF program diverts one of them, -EOPNOTSUPP if
 * kernel.ftrace_enabled is 0, or another negative errno.
 */
int gs_divert_attach(void)
{
	unsigned int i;
	int err = gs_guard_attach();

	if (err)
		return err;
	err = gs_sites_try(GS_SITE_IOCTL, GS_SITE_COPY_OUT);
	for (i = 0; !err && i < ARRAY_SIZE(gs_diversions); i++) {
		err = gs_diversion_attach(&gs_diversions[i]);
		if (err)
			gs_diversions_detach(i);
	}
	if (err)
		unregister_ftrace_function(&gs_guard);
	return err;
}

/**
 * gs_divert_detach() - Stop diverting. A diverted call may still be under way.
 *
 * Return: False if calls still come to us, so that the module must stay.
 */
bool gs_divert_detach(void)
{
	bool is_detached = gs_diversions_detach(ARRAY_SIZE(gs_diversions));

	return !unregister_ftrace_function(&gs_guard) && is_detached;
}

/**
 * gs_divert_part_attach() - Let the functions of a part be diverted from now on.
 * @part: The part, whose functions are in gs_sites[], as far as the driver has them.
 *
 * Return: 0 or a negative errno.
 */
int gs_divert_part_attach(enum gs_part part)
{
	return gs_sites_try(gs_parts[part].first, gs_parts[part].last) ?:
		       gs_diversion_attach(&gs_parts[part]);
}

/**
 * gs_divert_part_detach() - Stop diverting them.
 * @part: A part that is attached.
 *
 * Return: See gs_divert_detach().
 */
bool gs_divert_part_detach(enum gs_part part)
{
	return gs_diversion_detach(&gs_parts[part]);
}

/**
 * gs_divert_exit() - Free what ftrace keeps. Nothing is attached after this.
 */
void gs_divert_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gs_diversions); i++)
		ftrace_free_filter(&gs_diversions[i].ops);
	for (i = 0; i < GS_PARTS; i++)
		ftrace_free_filter(&gs_parts[i].ops);
	ftrace_free_filter(&gs_guard);
	ftrace_free_filter(&gs_trial);
}
