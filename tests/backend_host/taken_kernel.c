/*
 * Code that runs where a guest's kernels run, as one that has taken their process over: a module for softgpu with one
 * kernel, `attempt`, that makes whatever system call its parameters say and stores what came back. The tests give it
 * to softgpu in place of what the compiler makes.
 */
#include <stddef.h>
#include <stdint.h>

#include "kernel_abi.h"

struct attempt {
    uint64_t number;
    uint64_t arguments[6];
    int64_t *answer;
    uint64_t is_i386; /* through the door of 32-bit programs, where numbers mean other calls */
};

static int64_t system_call(const struct attempt *attempt)
{
    const uint64_t *given = attempt->arguments;
    register int64_t answer __asm__("rax") = (int64_t)attempt->number;
    register uint64_t fourth __asm__("r10") = given[3];
    register uint64_t fifth __asm__("r8") = given[4];
    register uint64_t sixth __asm__("r9") = given[5];

    __asm__ volatile("syscall"
                     : "+a"(answer)
                     : "D"(given[0]), "S"(given[1]), "d"(given[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return answer;
}

static int64_t i386_call(const struct attempt *attempt)
{
    int64_t answer = (int64_t)attempt->number;

    __asm__ volatile("int $0x80" : "+a"(answer) : : "memory");
    return answer;
}

static void run(const struct sgp_block *block, struct sgp_thread *self)
{
    const struct attempt *attempt = block->parameters;

    (void)self;
    *attempt->answer = attempt->is_i386 ? i386_call(attempt) : system_call(attempt);
}

static const struct sgp_parameter parameters[] = {{.offset_bytes = 0, .size_bytes = sizeof(struct attempt)}};

static const struct sgp_kernel kernels[] = {{
    .name = "attempt",
    .run_block = run,
    .parameters = parameters,
    .nr_parameters = 1,
    .parameters_bytes = sizeof(struct attempt),
    .stack_bytes = 4096,
    .max_threads = 1024,
    .nr_registers = 32,
}};

__attribute__((visibility("default"))) const struct sgp_module sgp_module = {
    .abi_version = SGP_ABI_VERSION,
    .ptx_version = 80,
    .target = 80,
    .nr_kernels = 1,
    .kernels = kernels,
};
