/*
 * Stops a process behind any of its instructions: a thread as it were, that has this one's memory.
 *
 * Wrong when: it calls a function that nobody has called yet. The loader's instructions that look it up are steps, too.
 */
#ifndef TESTS_STEPPING_H
#define TESTS_STEPPING_H

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct step {
    void (*what)(const void *of);
    const void *of;
};

static int step_watched(void *step)
{
    const struct step *its = step;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(1);
    }
    kill((pid_t)syscall(SYS_getpid), SIGSTOP);
    its->what(its->of);
    _exit(0);
}

/* Begins what the step says and stops it behind its first so many instructions: its process, to be given to one of
 * those below; 0: it came to its end before that; -1: it could not be watched. One at a time; the step lives as long.
 */
static pid_t step_begin(struct step *step, uint32_t nr_instructions)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    int status = 0;
    const pid_t child = clone(step_watched, stack + sizeof(stack), CLONE_VM | SIGCHLD, step);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        return -1;
    }
    for (uint32_t i = 0; i < nr_instructions; i++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child) {
            return -1;
        }
        if (!WIFSTOPPED(status)) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
        }
    }
    return child;
}

/* Kills it where it is. */
static inline bool step_die(pid_t child)
{
    int status = 0;
    return kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child;
}

/* Lets it come to its end. */
static inline bool step_end(pid_t child)
{
    int status = 0;
    return ptrace(PTRACE_DETACH, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

#endif
