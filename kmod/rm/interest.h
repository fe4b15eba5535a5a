/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which calls are of interest, told from number and size of the command and at most one word of its
 * argument. The filter asks before a call, pin.c asks again where the call enters RM, with what the
 * driver has read: both by this rule, so that nothing passes between. Pure; also compiled in user
 * space, by tests/kmod.
 */
#ifndef GPUSHARE_INTEREST_H
#define GPUSHARE_INTEREST_H

#include "refusals.h"
#include "rm_call.h"

enum gs_interest {
	GS_INTEREST_NONE,
	GS_INTEREST_BY_WORD, /* gs_word_is_of_interest() tells */
	GS_INTEREST_SURE,
};

/**
 * gs_interest_in_kind() - is a command of interest?
 * @kind: of it
 * @nr: number of the ioctl, or of the command inside an XFER
 * @offset: out: of the word of the argument that tells, when it takes one
 *
 * Return: whether, as far as these tell.
 */
static __always_inline enum gs_interest gs_interest_in_kind(enum rm_call_kind kind, __u32 nr,
							    __u32 *offset)
{
	switch (kind) {
	case RM_CALL_OTHER:
		return GS_INTEREST_NONE;
	case RM_CALL_CONTROL:
		*offset = offsetof(struct rm_nvos54, cmd);
		return GS_INTEREST_BY_WORD;
	case RM_CALL_ALLOC: /* the class stands at the same place in all forms but one */
		*offset = nr == RM_ESC_VID_HEAP_CONTROL ?
				  offsetof(struct rm_nvos32_head, function) :
				  offsetof(struct rm_nvos64, h_class);
		return GS_INTEREST_BY_WORD;
	default:
		return GS_INTEREST_SURE;
	}
}

/**
 * gs_interest_in() - the same by number and size
 * @nr: see there
 * @size: of its argument
 * @offset: see there
 *
 * Return: see there.
 */
static __always_inline enum gs_interest gs_interest_in(__u32 nr, __u32 size, __u32 *offset)
{
	return gs_interest_in_kind(rm_call_kind(nr, size), nr, offset);
}

/**
 * gs_word_is_of_interest() - does the word of its argument make a command of interest?
 * @nr: for which gs_interest_in() said BY_WORD
 * @word: see there
 *
 * Return: false when the call goes straight to the driver.
 */
static __always_inline bool gs_word_is_of_interest(__u32 nr, __u32 word)
{
	if (nr == RM_ESC_CONTROL)
		return gs_rule_of(word) != GS_RULE_NONE;
	if (nr == RM_ESC_VID_HEAP_CONTROL)
		return rm_is_heap_function(word);
	return rm_is_tracked_class(word);
}

#endif /* GPUSHARE_INTEREST_H */
