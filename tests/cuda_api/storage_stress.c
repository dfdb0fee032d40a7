/*
 * Context-local storage under threads: each owns the keys of its number and changes them, all read those of all. What a
 * get returns must be a value that was stored under that very (context, key): values carry both. One thread forks, and
 * the child must still be able to store. Usage: storage_stress [NR_ROUNDS]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../cuda_api/common/handshake/internal.h"

#define NR_THREADS  4
#define NR_FORKS    40
#define NR_KEYS     24
#define NR_CONTEXTS 3

static char keys[NR_THREADS][NR_KEYS];
static _Atomic(size_t) nr_destroyed;
static size_t nr_rounds;

static CUcontext context_of(size_t index)
{
    return (CUcontext)(uintptr_t)((index + 1) << 32);
}

static void *value_of(size_t context, const char *key, size_t round)
{
    return (void *)(((uintptr_t)(context + 1) << 56) | ((uintptr_t)(key - &keys[0][0]) << 32) | (uintptr_t)round);
}

static void destroyed(CUcontext context, void *key, void *value)
{
    (void)context;
    (void)key;
    (void)value;
    nr_destroyed++;
}

static void check(int is_right, const char *what)
{
    if (is_right) {
        return;
    }
    fprintf(stderr, "storage_stress: %s\n", what);
    abort();
}

static CUresult op_current_context(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static void *thread_run(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;
    void *value;
    for (size_t round = 1; round <= nr_rounds; round++) {
        size_t context = round % NR_CONTEXTS;
        char *own = &keys[self][round % NR_KEYS];
        CUresult stored = fgv_storage_put(context_of(context), own, value_of(context, own, round), destroyed);
        check(stored == CUDA_SUCCESS, "put");
        check(fgv_storage_get(&value, context_of(context), own) == CUDA_SUCCESS, "own value is missing");
        check(value == value_of(context, own, round), "own value is wrong");
        for (size_t i = 0; i < 8; i++) {
            const char *key = &keys[(self + i) % NR_THREADS][(round * 7 + i) % NR_KEYS];
            CUresult result = fgv_storage_get(&value, context_of(context), (void *)key);
            check(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE, "get");
            if (result == CUDA_SUCCESS) {
                check(((uintptr_t)value ^ (uintptr_t)value_of(context, key, 0)) >> 32 == 0, "another key's value");
            }
        }
        if (round % 3 == 0) {
            check(fgv_storage_delete(context_of(context), own) == CUDA_SUCCESS, "delete");
            check(fgv_storage_get(&value, context_of(context), own) == CUDA_ERROR_INVALID_HANDLE, "deleted and found");
        }
        if (self == 0 && round % (nr_rounds / NR_FORKS) == 0) {
            pid_t child = fork();
            if (child == 0) {
                alarm(10); /* forks do not inherit the parent's */
                _exit(fgv_storage_put(context_of(0), own, own, NULL) == CUDA_SUCCESS ? 0 : 1);
            }
            int status = -1;
            check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a forked child could not store");
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    nr_rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 4000;
    static const struct fgv_handshake_ops ops = {.current_context = op_current_context};
    fgv_handshake_set_ops(&ops);
    alarm(240);
    pthread_t threads[NR_THREADS];
    for (size_t i = 0; i < NR_THREADS; i++) {
        check(pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)i) == 0, "pthread_create");
    }
    for (size_t i = 0; i < NR_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    size_t nr_left = 0;
    void *value;
    for (size_t context = 0; context < NR_CONTEXTS; context++) {
        for (size_t key = 0; key < sizeof(keys); key++) {
            nr_left += fgv_storage_get(&value, context_of(context), &keys[0][0] + key) == CUDA_SUCCESS;
        }
    }
    for (size_t context = 0; context < NR_CONTEXTS; context++) {
        fgv_handshake_context_destroyed(context_of(context));
    }
    check(nr_left > 0 && nr_destroyed == nr_left, "each value left is destroyed once");
    printf("PASS\n");
    return 0;
}
