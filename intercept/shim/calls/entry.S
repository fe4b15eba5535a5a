/* SPDX-License-Identifier: Apache-2.0
 *
 * What the shim exports. Each name of hooks.def is one jump through a table, which at first leads to
 * gs_resolve; that puts the driver's own function or a wrapper in its own place. So a program that
 * is linked to libcuda.so.1 pays one indirect jump, as for any function of a library. Any thread.
 *
 * dlsym, dlvsym and dlopen are here because the real ones find out from the return address which
 * library calls them (for RTLD_NEXT and RTLD_DEFAULT, and for where to look): they go on by a jump,
 * dlsym and dlvsym if the name is not hooked, which leaves that address where it was. No function of
 * hooks.def takes floating point, so the vector registers are not saved.
 */
#ifndef __x86_64__
#error "the shim's entry points are written for x86-64"
#endif

#define GS_HOOK(kind, base, symbol, since, parameters) gs_entry symbol;
#define GS_HOOK_VARIANT GS_HOOK

        .set gs_index, 0

        .section .data.rel.gs_targets, "aw", @progbits
        .balign 64
        .globl gs_targets
        .hidden gs_targets
        .type gs_targets, @object
gs_targets:
        .text

        /* The begin of a function that others may call. */
        .macro gs_function symbol
        .globl \symbol
        .type \symbol, @function
        .balign 16
\symbol:
        .cfi_startproc
        endbr64
        .endm

        .macro gs_entry symbol
        gs_function \symbol
        jmp *gs_targets + 8 * gs_index(%rip)
.Llazy\@:
        endbr64
        pushq $gs_index
        .cfi_adjust_cfa_offset 8
        jmp gs_lazy
        .cfi_endproc
        .size \symbol, . - \symbol
        .pushsection .data.rel.gs_targets
        .quad .Llazy\@
        .popsection
        .set gs_index, gs_index + 1
        .endm

/* gs_resolve(index) returns the function to jump to. On the stack are the index and the return
 * address. */
        .type gs_lazy, @function
gs_lazy:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        pushq %rdi
        pushq %rsi
        pushq %rdx
        pushq %rcx
        pushq %r8
        pushq %r9
        .cfi_adjust_cfa_offset 48
        movq 48(%rsp), %rdi
        call gs_resolve
        popq %r9
        popq %r8
        popq %rcx
        popq %rdx
        popq %rsi
        popq %rdi
        addq $8, %rsp
        .cfi_adjust_cfa_offset -56
        jmp *%rax
        .cfi_endproc
        .size gs_lazy, . - gs_lazy

        .globl gs_trampolines_begin
        .hidden gs_trampolines_begin
gs_trampolines_begin:
#include "intercept/shim/driver/hooks.def"
        .globl gs_trampolines_end
        .hidden gs_trampolines_end
gs_trampolines_end:
        .pushsection .data.rel.gs_targets
        .size gs_targets, . - gs_targets
        .popsection

        /* Calls a function of ours and keeps the arguments of the call that we are in, of which there
         * are three at most. */
        .macro gs_call_within function
        pushq %rdi
        pushq %rsi
        pushq %rdx
        .cfi_adjust_cfa_offset 24
        call \function
        popq %rdx
        popq %rsi
        popq %rdi
        .cfi_adjust_cfa_offset -24
        .endm

        /* Goes on in libc's function, and ends ours. `real` holds it once `find` has found it. */
        .macro gs_go_on symbol real find
        movq \real(%rip), %rax
        testq %rax, %rax
        jz .Lfind\@
        jmp *%rax
.Lfind\@:
        gs_call_within \find
        testq %rax, %rax
        jz .Lnone\@
        jmp *%rax
.Lnone\@:
        ret
        .cfi_endproc
        .size \symbol, . - \symbol
        .endm

        /* The arguments are handle, name, and for dlvsym the version. */
        .macro gs_lookup symbol real find hooked
        gs_function \symbol
        cmpq $-1, %rdi /* RTLD_NEXT */
        je .Lother\@
        testq %rsi, %rsi
        jz .Lother\@
        cmpb $'c', (%rsi)
        jne .Lother\@
        cmpb $'u', 1(%rsi)
        jne .Lother\@
        pushq %rdi
        pushq %rsi
        pushq %rdx
        .cfi_adjust_cfa_offset 24
        movq %rsi, %rdi
        call gs_is_hooked
        popq %rdx
        popq %rsi
        popq %rdi
        .cfi_adjust_cfa_offset -24
        testl %eax, %eax
        jnz \hooked
.Lother\@:
        gs_go_on \symbol, \real, \find
        .endm

        /* Libc's looks for the library as the one asks for that calls it. RTLD_DEEPBIND is 8. */
        gs_function dlopen
        testl $8, %esi
        jz .Lopen
        gs_call_within gs_note_deep_bind
.Lopen:
        gs_go_on dlopen, gs_real_dlopen, gs_find_dlopen

        gs_lookup dlsym, gs_real_dlsym, gs_find_dlsym, gs_dlsym_hooked
        gs_lookup dlvsym, gs_real_dlvsym, gs_find_dlvsym, gs_dlvsym_hooked

        .section .note.GNU-stack, "", @progbits
