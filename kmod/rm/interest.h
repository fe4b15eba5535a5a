/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which calls are of interest. The number and the size of the command and at most one word of its
 * argument tell. The filter asks before a call, and driver/pin.c asks again where the call enters
 * RM, with what the driver has read. Both go by this rule, so nothing slips between them. This
 * header is pure, and tests/kmod also compile it in user space.
 */
#ifndef GPUSHARE_INTEREST_H
#define GPUSHARE_INTEREST_H

#include "refusals.h"
#include "rm_call.h"

/**
 * enum gs_interest - Is a call of interest?
 * @GS_INTEREST_NONE: It is not.
 * @GS_INTEREST_BY_WORD: gs_word_is_of_interest() tells.
 * @GS_INTEREST_SURE: It is, whatever its argument holds.
 */
enum gs_interest { GS_INTEREST_NONE, GS_INTEREST_BY_WORD, GS_INTEREST_SURE };

/**
 * gs_interest_in_kind() - Is a command of interest, as far as its kind tells?
 * @kind: The kind of the command.
 * @nr: The number of the ioctl, or of the command inside an XFER.
 * @offset: Out, with GS_INTEREST_BY_WORD: the offset in the argument of the word that tells.
 *
 * Return: The answer.
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
	case RM_CALL_ALLOC: /* The class stands at the same place in all forms but one. */
		*offset = nr == RM_ESC_VID_HEAP_CONTROL ?
				  offsetof(struct rm_nvos32_head, function) :
				  offsetof(struct rm_nvos64, h_class);
		return GS_INTEREST_BY_WORD;
	default:
		return GS_INTEREST_SURE;
	}
}

/**
 * gs_interest_in() - Is a command of interest, as far as its number and size tell?
 * @nr: See gs_interest_in_kind().
 * @size: The size of its argument.
 * @offset: See gs_interest_in_kind().
 *
 * Return: The answer.
 */
static __always_inline enum gs_interest gs_interest_in(__u32 nr, __u32 size, __u32 *offset)
{
	return gs_interest_in_kind(rm_call_kind(nr, size), nr, offset);
}

/**
 * gs_word_is_of_interest() - Does the word of its argument make a command of interest?
 * @nr: A number for which gs_interest_in() said GS_INTEREST_BY_WORD.
 * @word: The word at the offset that it said.
 *
 * Return: False if the call goes straight to the driver.
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
