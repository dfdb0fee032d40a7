/*
 *   status [--json]   what this machine's vGPU has and gets, and its programs
 *
 * `fairgv-guest status` runs it. It maps the region as a program does, but is no client: it takes no place in it and
 * asks nobody. What it prints stands there: what the daemon tells (told.h), and in each client's entry what its worker
 * says.
 *
 * It has no libc start files, for the reason in probe.c.
 *
 * Wrong when: a program of this machine writes into the region what it likes. It misleads this machine alone.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "ivshmem/told.h"
#include "region/find.h"
#include "region/program.h"

#define NAME_WIDTH    40
#define WHOLE         1000u
#define BEAT_LIMIT_NS UINT64_C(1000000000) /* four beats */
#define BEAT_LOOK_NS  5000000

extern int __cxa_atexit(void (*function)(void *), void *argument, void *library);

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %rdi\n"
        "    mov %rsp, %rsi\n"
        "    and $-16, %rsp\n"
        "    call status\n");

void fgv_log_cause(enum fgv_cause cause, const char *format, ...)
{
    (void)cause;
    va_list arguments;
    va_start(arguments, format);
    fputs("fairgv: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* False for an entry that no program is served in. What a terminal or a reader of JSON could stumble over is replaced.
 */
static bool program_read(const struct fgv_region *region, uint32_t index, struct fgv_program *program)
{
    if (!fgv_program_read(region, index, program)) {
        return false;
    }
    for (char *at = program->name; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') {
            *at = '?';
        }
    }
    return true;
}

/* Whether the daemon beats. It does four times a second. */
static bool host_lives(const struct fgv_region *region)
{
    const struct timespec look = {.tv_nsec = BEAT_LOOK_NS};
    const uint64_t before = atomic_load_explicit(&region->header->host_beat, memory_order_relaxed);
    for (uint64_t waited_ns = 0; waited_ns < BEAT_LIMIT_NS; waited_ns += BEAT_LOOK_NS) {
        nanosleep(&look, NULL);
        if (atomic_load_explicit(&region->header->host_beat, memory_order_relaxed) != before) {
            return true;
        }
    }
    return false;
}

static void size_print(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    printf("%.*f %s", unit == 0 || value >= 100 ? 0 : 1, value, units[unit]);
}

static void part_print(const char *name, uint32_t permille, const char *more)
{
    printf("%-10s %5.1f %%%s\n", name, permille / 10.0, more);
}

static void text_print(const struct fgv_region *region, const struct fgv_told_values *told)
{
    printf("%-10s %5u\n", "weight", told->weight);
    if (told->entitled_permille == FGV_TOLD_NOT_ACTIVE) {
        printf("%-10s %5s      nothing now: its programs do not want the GPU\n", "entitled", "-");
    } else {
        part_print("entitled", told->entitled_permille, "    of the GPU, beside who else is active now");
    }
    part_print("got", told->used_permille, "    in the last 10 s");
    if (told->request_permille != 0) {
        part_print("request", told->request_permille, "    at least, while it has work");
    }
    if (told->limit_permille < WHOLE) {
        part_print("limit", told->limit_permille, "    at most");
    }
    printf("%-10s ", "memory");
    size_print(told->memory_bytes);
    if (told->quota_bytes != 0) {
        fputs(" of ", stdout);
        size_print(told->quota_bytes);
    }
    printf("\n%-10s %.1f s in all\n", "GPU time", (double)told->used_ns / 1e9);
    printf("%-10s %" PRIu64 " for the GPU, %.1f s in all", "waits", told->nr_waits, (double)told->wait_ns / 1e9);
    if (told->nr_waits != 0) {
        printf(", %.1f ms each", (double)told->wait_ns / 1e6 / (double)told->nr_waits);
    }
    fputc('\n', stdout);
    bool is_first = true;
    struct fgv_program program;
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (!program_read(region, i, &program)) {
            continue;
        }
        if (is_first) {
            printf("\n%10s  %-*s %7s  %s\n", "pid", NAME_WIDTH, "program", "GPU", "memory");
            is_first = false;
        }
        printf("%10" PRIu32 "  %-*.*s %5.1f %%  ", program.pid, NAME_WIDTH, NAME_WIDTH, program.name,
               (program.gpu_permille < WHOLE ? program.gpu_permille : WHOLE) / 10.0);
        size_print(program.memory_bytes);
        fputc('\n', stdout);
    }
}

static void json_print(const struct fgv_region *region, const struct fgv_told_values *told, bool is_alive)
{
    printf("{\"weight\": %u, \"quota_bytes\": %" PRIu64 ", \"request\": %.1f, \"limit\": %.1f, ", told->weight,
           told->quota_bytes, told->request_permille / 10.0, told->limit_permille / 10.0);
    if (told->entitled_permille == FGV_TOLD_NOT_ACTIVE) {
        printf("\"entitled_share\": null, ");
    } else {
        printf("\"entitled_share\": %.3f, ", told->entitled_permille / 1000.0);
    }
    printf("\"recent_shares\": {\"10\": %.3f}, \"used_ns\": %" PRIu64 ", \"wait_ns\": %" PRIu64
           ", \"nr_waits\": %" PRIu64 ", \"memory_bytes\": %" PRIu64 ", \"is_host_alive\": %s, \"programs\": [",
           told->used_permille / 1000.0, told->used_ns, told->wait_ns, told->nr_waits, told->memory_bytes,
           is_alive ? "true" : "false");
    const char *between = "";
    struct fgv_program program;
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (program_read(region, i, &program)) {
            printf("%s{\"pid\": %" PRIu32 ", \"program\": \"%s\", \"gpu_share\": %.3f, \"memory_bytes\": %" PRIu64 "}",
                   between, program.pid, program.name,
                   (program.gpu_permille < WHOLE ? program.gpu_permille : WHOLE) / 1000.0, program.memory_bytes);
            between = ", ";
        }
    }
    puts("]}");
}

static int show(bool is_json)
{
    struct fgv_region region;
    struct fgv_told_values told;
    if (fgv_find_region(&region, NULL, NULL) != CUDA_SUCCESS) {
        return 1;
    }
    if (atomic_load_explicit(&region.header->host_state, memory_order_acquire) != FGV_HOST_UP) {
        fputs("fairgv: the host serves this machine's vGPU no more: its daemon was stopped, or the vGPU taken away\n",
              stderr);
        return 1;
    }
    const bool is_alive = host_lives(&region);
    if (!fgv_told_read(&region, &told)) {
        fputs("fairgv: the host has told nothing of this machine's vGPU yet; ask again in a few seconds\n", stderr);
        return 1;
    }
    if (is_json) {
        json_print(&region, &told, is_alive);
    } else {
        text_print(&region, &told);
        if (!is_alive) {
            puts("\nThe host's daemon does not answer: what it told is old.");
        }
    }
    return 0;
}

/* `stack` begins with the number of arguments, and their addresses follow. */
__attribute__((noreturn, used)) void status(void (*loader_end)(void *), void **stack)
{
    __cxa_atexit(loader_end, NULL, NULL);
    const uintptr_t nr_arguments = (uintptr_t)stack[0];
    const bool is_json = nr_arguments == 2 && strcmp(stack[2], "--json") == 0;
    if (nr_arguments > 2 || (nr_arguments == 2 && !is_json)) {
        fputs("usage: fairgv-guest status [--json]\n", stderr);
        exit(2);
    }
    exit(show(is_json));
}
