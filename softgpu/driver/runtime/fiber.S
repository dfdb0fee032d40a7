/*
 * Switching between fibers, x86-64 System V: a switch is a call, so only what a callee must preserve is saved, on the
 * stack that is left.
 * The floating-point control words are not: compiled kernels do not change them.
 */
    .text
    .globl sgp_fiber_switch
    .hidden sgp_fiber_switch
    .type sgp_fiber_switch, @function
sgp_fiber_switch:
    .cfi_startproc
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
    .size sgp_fiber_switch, .-sgp_fiber_switch

    .globl sgp_fiber_jump
    .hidden sgp_fiber_jump
    .type sgp_fiber_jump, @function
sgp_fiber_jump:
    .cfi_startproc
    cld
    movq %rdi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
    .size sgp_fiber_jump, .-sgp_fiber_jump

/* The first return of a fresh fiber leads here: entry in r12, its argument in r13. */
    .globl sgp_fiber_start
    .hidden sgp_fiber_start
    .type sgp_fiber_start, @function
sgp_fiber_start:
    .cfi_startproc
    .cfi_undefined rip
    movq %r13, %rdi
    callq *%r12
    ud2
    .cfi_endproc
    .size sgp_fiber_start, .-sgp_fiber_start

    .section .note.GNU-stack,"",@progbits
