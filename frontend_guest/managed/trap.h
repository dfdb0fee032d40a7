/*
 * How this library learns that the program touches managed memory that it may not touch yet. By userfaultfd where it is
 * to be had with all that is needed: then touches by system calls are noticed, too. Else by protection and a handler of
 * SIGSEGV, which hands on what is not its own; a system call that is given such memory then fails with EFAULT.
 *
 * Which of the two is decided once; FAIRGV_TRAP=signal asks for the second.
 */
#ifndef FRONTEND_GUEST_TRAP_H
#define FRONTEND_GUEST_TRAP_H

#include <stdbool.h>
#include <stdint.h>

struct fgv_trap_ops {
    /* What is done about a touch by the thread of this id, by any thread, before that one goes on. False: the address
     * is nothing of ours. */
    bool (*touched)(uint64_t address, bool is_write, uint32_t thread);
    /* Where there is a thread to spare for it, after a touch that nobody waits for any more: brings some of what is
     * likely to be touched next. False: enough. */
    bool (*ahead)(uint64_t address);
    /* Whether touches of this thread do not wait until those of others are done with: they never wait themselves. */
    bool (*is_urgent)(uint32_t thread);
};

/* Opens it, once. */
void fgv_trap_open(const struct fgv_trap_ops *ops);
/* Notices touches of these pages, which are mapped without access. */
bool fgv_trap_set(uint64_t address, uint64_t bytes);
/* Whether pages must have contents to be given: to be written to, where they were never. */
bool fgv_trap_needs_contents(void);
/* The program may read, or write, pages that it could not touch; false: not all of them, as there are too many pieces.
 */
bool fgv_trap_give(uint64_t address, uint64_t bytes, bool is_writable);
/* It may write what it could read, and the reverse. */
bool fgv_trap_make_writable(uint64_t address, uint64_t bytes);
bool fgv_trap_make_readable(uint64_t address, uint64_t bytes);
/* It may not touch them any more. */
bool fgv_trap_take(uint64_t address, uint64_t bytes);
/* Whatever pages are there that nobody looks after: who touches them waits, as for a touch, until something else is put
 * in their place. By a signal, so that a system call that is given them fails. */
bool fgv_trap_hold(uint64_t address, uint64_t bytes);
/* Whether memory can be given for reading alone. */
bool fgv_trap_tells_writes(void);
/* Before pages are given away: our handler comes first again, should the program have set one since. */
void fgv_trap_renew(void);

#endif
