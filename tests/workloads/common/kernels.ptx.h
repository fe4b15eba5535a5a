// SPDX-License-Identifier: Apache-2.0
// The kernels of all workloads, as PTX that every GPU since Volta can run; the workloads load it as
// a module. intercept/cuda/kernel_math.h says in C++ what the kernels compute. The multiplier and
// the summand of a round are parameters, so that no compiler can fold the rounds together.
#pragma once

namespace gpushare::workloads {

// Parts that several kernels have, as text. The names of kernels are those of their labels.
#define GS_PTX_ROUND "\tmad.lo.u32 %x, %x, %mul, %add;\n"
#define GS_PTX_4_ROUNDS GS_PTX_ROUND GS_PTX_ROUND GS_PTX_ROUND GS_PTX_ROUND
#define GS_PTX_16_ROUNDS GS_PTX_4_ROUNDS GS_PTX_4_ROUNDS GS_PTX_4_ROUNDS GS_PTX_4_ROUNDS
// The thread's index; threads beyond the elements go to the end.
#define GS_PTX_INDEX(kernel)              \
  "\tmov.u32 %block, %ctaid.x;\n"         \
  "\tmov.u32 %size, %ntid.x;\n"           \
  "\tmov.u32 %i, %tid.x;\n"               \
  "\tmad.lo.u32 %i, %block, %size, %i;\n" \
  "\tsetp.ge.u32 %beyond, %i, %count;\n"  \
  "\t@%beyond bra " kernel "_end;\n"
#define GS_PTX_ADD_LANES(distance)         \
  "\tshfl.sync.bfly.b32 %y, %x, " distance \
  ", 31, 0xffffffff;\n"                    \
  "\tadd.u32 %x, %x, %y;\n"
#define GS_PTX_END(kernel) kernel "_end:\n\tret;\n"
// The sum over the threads of a warp is added to *out by the first of them.
#define GS_PTX_ADD_WARP(kernel) \
  GS_PTX_ADD_LANES("16") GS_PTX_ADD_LANES("8") GS_PTX_ADD_LANES("4") GS_PTX_ADD_LANES("2") \
  GS_PTX_ADD_LANES("1")                                                                     \
  "\tsetp.ne.u32 %other, %lane, 0;\n"                                                       \
  "\t@%other bra " kernel "_end;\n"                                                         \
  "\tred.global.add.u32 [%out], %x;\n" GS_PTX_END(kernel)
// fold_value() of the thread's element is added to *out.
#define GS_PTX_ADD_FOLDED(kernel) \
  "\tmad.lo.u32 %y, %i, 2, 1;\n"  \
  "\tmul.lo.u32 %x, %x, %y;\n"    \
  "\tred.global.add.u32 [%out], %x;\n" GS_PTX_END(kernel)

//   gs_empty    does nothing
//   gs_spin     makes `units` units of 16 rounds in every thread and then applies one map (a host
//   that
//               passes the inverse of all rounds gets the start values back); adds all to *out
//   gs_endless  repeats `units` units and counts each repetition in progress[block] until *stop is
//               not 0; then adds the threads of a block to out[block]. It reads *stop every 65,536
//               units (2 ms), because a read of host memory takes 1 us (measured on an H200),
//               during which the block cannot be preempted
//   gs_fill     buffer[i] = fill_value(seed, i)
//   gs_mix      to[i] = mix_value(to[i], from[(i + shift) mod count]), with shift < count
//   gs_fold     *out += fold_value(buffer[i], i)
//   gs_stamp    base[i * stride_bytes] = value + i
//   gs_stamps   *out += fold_value(base[i * stride_bytes], i)
//   gs_sms      sets the bit of every SM that runs a block in the words at `out`; a block stays for
//               `units` units, so that the next one goes to another SM
//   gs_meet     each block adds 1 to *come, waits until it is the number of blocks, and adds 1 to
//               *out: it never ends where the blocks are not on the GPU all at once
//   gs_note     appends `value` to a list whose first word is its length; for one thread at a time
inline constexpr char kKernels[] = R"ptx(
.version 7.0
.target sm_70
.address_size 64

.visible .entry gs_empty()
{
	ret;
}

.visible .entry gs_spin(
	.param .u64 gs_spin_out,
	.param .u32 gs_spin_seed,
	.param .u32 gs_spin_units,
	.param .u32 gs_spin_mul,
	.param .u32 gs_spin_add,
	.param .u32 gs_spin_back_mul,
	.param .u32 gs_spin_back_add)
{
	.reg .pred %none, %more, %other;
	.reg .b32 %x, %y, %units, %mul, %add, %back_mul, %back_add, %block, %size, %thread, %lane;
	.reg .b64 %out;

	ld.param.u64 %out, [gs_spin_out];
	ld.param.u32 %y, [gs_spin_seed];
	ld.param.u32 %units, [gs_spin_units];
	ld.param.u32 %mul, [gs_spin_mul];
	ld.param.u32 %add, [gs_spin_add];
	ld.param.u32 %back_mul, [gs_spin_back_mul];
	ld.param.u32 %back_add, [gs_spin_back_add];
	cvta.to.global.u64 %out, %out;
	mov.u32 %block, %ctaid.x;
	mov.u32 %size, %ntid.x;
	mov.u32 %thread, %tid.x;
	and.b32 %lane, %thread, 31;
	mad.lo.u32 %thread, %block, %size, %thread;
	mad.lo.u32 %x, %thread, 0x9E3779B9, %y;
	setp.eq.u32 %none, %units, 0;
	@%none bra spin_done;
spin_unit:
)ptx" GS_PTX_16_ROUNDS R"ptx(	sub.u32 %units, %units, 1;
	setp.ne.u32 %more, %units, 0;
	@%more bra spin_unit;
spin_done:
	mad.lo.u32 %x, %x, %back_mul, %back_add;
)ptx" GS_PTX_ADD_WARP("spin") R"ptx(}

.visible .entry gs_endless(
	.param .u64 gs_endless_progress,
	.param .u64 gs_endless_stop,
	.param .u64 gs_endless_out,
	.param .u32 gs_endless_seed,
	.param .u32 gs_endless_units,
	.param .u32 gs_endless_mul,
	.param .u32 gs_endless_add)
{
	.reg .pred %first, %more, %stopping, %other;
	.reg .b32 %x, %y, %units, %left, %every, %until, %mul, %add, %block, %size, %thread, %lane, %stopped;
	.reg .b64 %progress, %stop, %out, %offset, %count;

	ld.param.u64 %progress, [gs_endless_progress];
	ld.param.u64 %stop, [gs_endless_stop];
	ld.param.u64 %out, [gs_endless_out];
	ld.param.u32 %y, [gs_endless_seed];
	ld.param.u32 %units, [gs_endless_units];
	ld.param.u32 %mul, [gs_endless_mul];
	ld.param.u32 %add, [gs_endless_add];
	cvta.to.global.u64 %progress, %progress;
	cvta.to.global.u64 %stop, %stop;
	cvta.to.global.u64 %out, %out;
	mov.u32 %block, %ctaid.x;
	mov.u32 %size, %ntid.x;
	mov.u32 %thread, %tid.x;
	setp.eq.u32 %first, %thread, 0;
	and.b32 %lane, %thread, 31;
	mad.lo.u32 %thread, %block, %size, %thread;
	mad.lo.u32 %x, %thread, 0x9E3779B9, %y;
	mul.wide.u32 %offset, %block, 8;
	add.u64 %progress, %progress, %offset;
	mul.wide.u32 %offset, %block, 4;
	add.u64 %out, %out, %offset;
	mov.u64 %count, 0;
	div.u32 %every, 65536, %units;
	add.u32 %every, %every, 1;
	mov.u32 %until, %every;
endless_turn:
	mov.u32 %left, %units;
endless_unit:
)ptx" GS_PTX_16_ROUNDS R"ptx(	sub.u32 %left, %left, 1;
	setp.ne.u32 %more, %left, 0;
	@%more bra endless_unit;
	add.u64 %count, %count, 1;
	@%first st.volatile.global.u64 [%progress], %count;
	sub.u32 %until, %until, 1;
	setp.ne.u32 %more, %until, 0;
	@%more bra endless_turn;
	mov.u32 %until, %every;
	mov.u32 %stopped, 0;
	@%first ld.volatile.global.u32 %stopped, [%stop];
	setp.ne.u32 %stopping, %stopped, 0;
	bar.red.or.pred %stopping, 0, %stopping;
	@!%stopping bra endless_turn;
)ptx" GS_PTX_ADD_WARP("endless") R"ptx(}

.visible .entry gs_fill(
	.param .u64 gs_fill_buffer,
	.param .u32 gs_fill_count,
	.param .u32 gs_fill_seed)
{
	.reg .pred %beyond;
	.reg .b32 %i, %count, %seed, %x, %y, %block, %size;
	.reg .b64 %buffer, %offset;

	ld.param.u64 %buffer, [gs_fill_buffer];
	ld.param.u32 %count, [gs_fill_count];
	ld.param.u32 %seed, [gs_fill_seed];
	cvta.to.global.u64 %buffer, %buffer;
)ptx" GS_PTX_INDEX("fill") R"ptx(	mad.lo.u32 %x, %i, 0x9E3779B9, %seed;
	shr.u32 %y, %x, 16;
	xor.b32 %x, %x, %y;
	mul.lo.u32 %x, %x, 0x85EBCA6B;
	mul.wide.u32 %offset, %i, 4;
	add.u64 %buffer, %buffer, %offset;
	st.global.u32 [%buffer], %x;
fill_end:
	ret;
}

.visible .entry gs_mix(
	.param .u64 gs_mix_to,
	.param .u64 gs_mix_from,
	.param .u32 gs_mix_count,
	.param .u32 gs_mix_shift)
{
	.reg .pred %beyond;
	.reg .b32 %i, %j, %count, %shift, %x, %y, %old, %block, %size;
	.reg .b64 %to, %from, %offset;

	ld.param.u64 %to, [gs_mix_to];
	ld.param.u64 %from, [gs_mix_from];
	ld.param.u32 %count, [gs_mix_count];
	ld.param.u32 %shift, [gs_mix_shift];
	cvta.to.global.u64 %to, %to;
	cvta.to.global.u64 %from, %from;
)ptx" GS_PTX_INDEX("mix") R"ptx(	add.u32 %j, %i, %shift;
	setp.ge.u32 %beyond, %j, %count;
	@%beyond sub.u32 %j, %j, %count;
	mul.wide.u32 %offset, %j, 4;
	add.u64 %from, %from, %offset;
	mul.wide.u32 %offset, %i, 4;
	add.u64 %to, %to, %offset;
	ld.global.u32 %y, [%from];
	ld.global.u32 %old, [%to];
	xor.b32 %x, %old, %y;
	mul.lo.u32 %x, %x, 0xC2B2AE35;
	shr.u32 %y, %x, 15;
	xor.b32 %x, %x, %y;
	add.u32 %x, %x, %old;
	st.global.u32 [%to], %x;
mix_end:
	ret;
}

.visible .entry gs_fold(
	.param .u64 gs_fold_buffer,
	.param .u32 gs_fold_count,
	.param .u64 gs_fold_out)
{
	.reg .pred %beyond;
	.reg .b32 %i, %count, %x, %y, %block, %size;
	.reg .b64 %buffer, %out, %offset;

	ld.param.u64 %buffer, [gs_fold_buffer];
	ld.param.u32 %count, [gs_fold_count];
	ld.param.u64 %out, [gs_fold_out];
	cvta.to.global.u64 %buffer, %buffer;
	cvta.to.global.u64 %out, %out;
)ptx" GS_PTX_INDEX("fold") R"ptx(	mul.wide.u32 %offset, %i, 4;
	add.u64 %buffer, %buffer, %offset;
	ld.global.u32 %x, [%buffer];
)ptx" GS_PTX_ADD_FOLDED("fold") R"ptx(}

.visible .entry gs_stamp(
	.param .u64 gs_stamp_base,
	.param .u64 gs_stamp_stride,
	.param .u32 gs_stamp_count,
	.param .u32 gs_stamp_value)
{
	.reg .pred %beyond;
	.reg .b32 %i, %count, %x, %block, %size;
	.reg .b64 %base, %stride, %offset;

	ld.param.u64 %base, [gs_stamp_base];
	ld.param.u64 %stride, [gs_stamp_stride];
	ld.param.u32 %count, [gs_stamp_count];
	ld.param.u32 %x, [gs_stamp_value];
	cvta.to.global.u64 %base, %base;
)ptx" GS_PTX_INDEX("stamp") R"ptx(	cvt.u64.u32 %offset, %i;
	mad.lo.u64 %base, %offset, %stride, %base;
	add.u32 %x, %x, %i;
	st.global.u32 [%base], %x;
stamp_end:
	ret;
}

.visible .entry gs_stamps(
	.param .u64 gs_stamps_base,
	.param .u64 gs_stamps_stride,
	.param .u32 gs_stamps_count,
	.param .u64 gs_stamps_out)
{
	.reg .pred %beyond;
	.reg .b32 %i, %count, %x, %y, %block, %size;
	.reg .b64 %base, %stride, %out, %offset;

	ld.param.u64 %base, [gs_stamps_base];
	ld.param.u64 %stride, [gs_stamps_stride];
	ld.param.u32 %count, [gs_stamps_count];
	ld.param.u64 %out, [gs_stamps_out];
	cvta.to.global.u64 %base, %base;
	cvta.to.global.u64 %out, %out;
)ptx" GS_PTX_INDEX("stamps") R"ptx(	cvt.u64.u32 %offset, %i;
	mad.lo.u64 %base, %offset, %stride, %base;
	ld.global.u32 %x, [%base];
)ptx" GS_PTX_ADD_FOLDED("stamps") R"ptx(}

.visible .entry gs_sms(
	.param .u64 gs_sms_out,
	.param .u32 gs_sms_units)
{
	.reg .pred %other, %more;
	.reg .b32 %sm, %word, %bit, %thread, %units, %x, %zero;
	.reg .b64 %out, %offset;

	ld.param.u64 %out, [gs_sms_out];
	ld.param.u32 %units, [gs_sms_units];
	cvta.to.global.u64 %out, %out;
	mov.u32 %thread, %tid.x;
	mov.u32 %sm, %smid;
	mov.u32 %x, %sm;
sms_unit:
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	mad.lo.u32 %x, %x, 1664525, 1013904223;
	sub.u32 %units, %units, 1;
	setp.gt.s32 %more, %units, 0;
	@%more bra sms_unit;
	and.b32 %bit, %sm, 31;
	mov.u32 %zero, 1;
	shl.b32 %bit, %zero, %bit;
	shr.u32 %word, %sm, 5;
	mul.wide.u32 %offset, %word, 4;
	add.s64 %out, %out, %offset;
	// What the units came to is used, so that no compiler leaves them out.
	setp.eq.u32 %other, %x, 0;
	@%other or.b32 %bit, %bit, 0;
	setp.ne.u32 %other, %thread, 0;
	@%other bra sms_end;
	red.global.or.b32 [%out], %bit;
sms_end:
	ret;
}

.visible .entry gs_note(
	.param .u64 gs_note_list,
	.param .u32 gs_note_value)
{
	.reg .b32 %length, %value;
	.reg .b64 %list, %place;

	ld.param.u64 %list, [gs_note_list];
	ld.param.u32 %value, [gs_note_value];
	cvta.to.global.u64 %list, %list;
	ld.volatile.global.u32 %length, [%list];
	add.u32 %length, %length, 1;
	mul.wide.u32 %place, %length, 4;
	add.u64 %place, %list, %place;
	st.volatile.global.u32 [%place], %value;
	membar.sys;
	st.volatile.global.u32 [%list], %length;
	ret;
}

.visible .entry gs_meet(
	.param .u64 gs_meet_come,
	.param .u64 gs_meet_out)
{
	.reg .pred %other, %early;
	.reg .b32 %thread, %blocks, %here, %one;
	.reg .b64 %come, %out;

	ld.param.u64 %come, [gs_meet_come];
	ld.param.u64 %out, [gs_meet_out];
	cvta.to.global.u64 %come, %come;
	cvta.to.global.u64 %out, %out;
	mov.u32 %thread, %tid.x;
	setp.ne.u32 %other, %thread, 0;
	@%other bra gs_meet_end;
	mov.u32 %blocks, %nctaid.x;
	mov.u32 %one, 1;
	red.global.add.u32 [%come], %one;
gs_meet_wait:
	ld.volatile.global.u32 %here, [%come];
	setp.lt.u32 %early, %here, %blocks;
	@%early bra gs_meet_wait;
	red.global.add.u32 [%out], %one;
gs_meet_end:
	ret;
}
)ptx";

#undef GS_PTX_ROUND
#undef GS_PTX_4_ROUNDS
#undef GS_PTX_16_ROUNDS
#undef GS_PTX_INDEX
#undef GS_PTX_ADD_LANES
#undef GS_PTX_END
#undef GS_PTX_ADD_WARP
#undef GS_PTX_ADD_FOLDED

}  // namespace gpushare::workloads
