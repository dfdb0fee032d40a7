/*
 * A kernel that touches what is not mapped raises a signal in the runner that runs it. The handler ends the block
 * there: it sends the thread back to the runner's own flow by changing where the signal returns to. Any other fault is
 * the program's, and goes to its handler or kills it.
 *
 * Mapped memory of the process that is none of the device's raises nothing: such accesses are collected by compiled
 * code and end in bad_address() of services.c when the block does.
 *
 * Wrong when: a kernel writes over what the process needs before its block ends. That process may crash.
 */
#include <ucontext.h>

#include "runtime/records.h"

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define NR_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static struct sigaction previous[NR_SIGNALS];
static __thread bool is_chaining __attribute__((tls_model("initial-exec")));
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t index_of(int signal)
{
    size_t i = 0;

    while (i < NR_SIGNALS - 1 && signals[i] != signal) {
        i++;
    }
    return i;
}

static void chain(int signal, siginfo_t *info, void *context)
{
    const struct sigaction *action = &previous[index_of(signal)];

    if (is_chaining ||
        (!(action->sa_flags & SA_SIGINFO) && (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN))) {
        /* An instruction that faulted faults again on return; a signal that was sent must be sent again. */
        struct sigaction standard = {.sa_handler = SIG_DFL};

        sigaction(signal, &standard, NULL);
        if (info->si_code <= 0) {
            raise(signal);
        }
        return;
    }
    is_chaining = true;
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signal, info, context);
    } else {
        action->sa_handler(signal);
    }
    is_chaining = false;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    struct sgp_runner *runner = sgp_runner_current;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

    if (!runner || !runner->is_in_kernel || info->si_code <= 0) {
        chain(signal, info, context);
        return;
    }
    runner->error = signal == SIGSEGV || signal == SIGBUS ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED;
    runner->fault_address = info->si_addr;
    runner->is_in_kernel = false;
    registers[REG_RDI] = (greg_t)(uintptr_t)runner->home;
    registers[REG_RIP] = (greg_t)(uintptr_t)sgp_fiber_jump;
}

void sgp_fault_handlers_install(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;

    pthread_mutex_lock(&install_lock);
    for (size_t i = 0; i < NR_SIGNALS; i++) {
        /* Looked at before each launch: the program may have installed a handler of its own since. */
        if (sigaction(signals[i], NULL, &now) || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)) {
            continue;
        }
        previous[i] = now;
        sigaction(signals[i], &ours, NULL);
    }
    pthread_mutex_unlock(&install_lock);
}
