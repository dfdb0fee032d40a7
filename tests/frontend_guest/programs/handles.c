/* The table of handles by itself. Prints one line for each thing that is not as it should be, and "done". */
#include "base/handles.h"

#include <pthread.h>
#include <stdio.h>

#define NR_MANY    5000
#define NR_THREADS 4

static void want(int is_right, const char *what)
{
    if (!is_right) {
        puts(what);
    }
}

static void *churn(void *unused)
{
    (void)unused;
    for (int i = 0; i < NR_MANY; i++) {
        uint64_t handle;
        want(fgv_handle_new(FGV_HANDLE_EVENT, &handle) == CUDA_SUCCESS, "none left");
        fgv_handle_set_object(FGV_HANDLE_EVENT, handle, &handle);
        want(fgv_handle_object(FGV_HANDLE_EVENT, handle) == &handle, "another thread's object");
        fgv_handle_drop(FGV_HANDLE_EVENT, handle);
        want(fgv_handle_check(FGV_HANDLE_EVENT, handle) == CUDA_ERROR_INVALID_HANDLE, "dropped and still there");
    }
    return NULL;
}

static void count_one(uint64_t handle, void *object, void *context)
{
    (void)handle;
    (void)object;
    ++*(int *)context;
}

int main(void)
{
    static uint64_t many[NR_MANY];
    for (int i = 0; i < NR_MANY; i++) {
        want(fgv_handle_new(FGV_HANDLE_STREAM, &many[i]) == CUDA_SUCCESS, "none left");
        fgv_handle_set_object(FGV_HANDLE_STREAM, many[i], &many[i]);
        want((uint32_t)many[i] != 0, "low half is zero");
        want(many[i] >> 57 != 0 && many[i] >> 57 != 0x7f, "could be an address");
    }
    for (int i = 0; i < NR_MANY; i++) {
        want(fgv_handle_object(FGV_HANDLE_STREAM, many[i]) == &many[i], "wrong object");
        want(fgv_handle_check(FGV_HANDLE_EVENT, many[i]) == CUDA_ERROR_INVALID_HANDLE, "good as another kind");
        want(fgv_handle_check(FGV_HANDLE_CONTEXT, many[i]) == CUDA_ERROR_INVALID_CONTEXT, "good as a context");
    }
    uint64_t again, old = many[7];
    fgv_handle_drop(FGV_HANDLE_STREAM, old);
    fgv_handle_drop(FGV_HANDLE_STREAM, old); /* twice does no harm */
    want(fgv_handle_check(FGV_HANDLE_STREAM, old) == CUDA_ERROR_INVALID_HANDLE, "dropped and still there");
    want(fgv_handle_new(FGV_HANDLE_STREAM, &again) == CUDA_SUCCESS && again != old, "an old number again");
    want((again & 0xffffff) == (old & 0xffffff), "the place is not used again");
    want(fgv_handle_check(FGV_HANDLE_STREAM, old) == CUDA_ERROR_INVALID_HANDLE, "the old number means the new one");
    want(!fgv_handle_object(FGV_HANDLE_STREAM, again), "an object from before");

    uint64_t first, beyond;
    want(fgv_handle_new_run(FGV_HANDLE_KERNEL, 1000, &first) == CUDA_SUCCESS, "no run");
    for (uint64_t i = 0; i < 1000; i++) {
        want(fgv_handle_check(FGV_HANDLE_KERNEL, first + i) == CUDA_SUCCESS, "a gap in a run");
    }
    want(fgv_handle_check(FGV_HANDLE_KERNEL, first + 1000) != CUDA_SUCCESS, "a run too long");
    want(fgv_handle_new_run(FGV_HANDLE_KERNEL, UINT32_MAX, &beyond) == CUDA_ERROR_OUT_OF_MEMORY, "a run without end");
    int count = 0;
    fgv_handle_each(FGV_HANDLE_KERNEL, count_one, &count);
    want(count == 1000, "not each once");

    uint64_t renamed, next, object;
    want(fgv_handle_new(FGV_HANDLE_GRAPH_EXEC, &renamed) == CUDA_SUCCESS, "none left");
    want(fgv_handle_rename(FGV_HANDLE_GRAPH_EXEC, renamed, 0x5500001000) == CUDA_SUCCESS, "not renamed");
    want(fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, renamed) == CUDA_ERROR_INVALID_VALUE, "the old name is still good");
    want(fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, 0x5500001000) == CUDA_SUCCESS, "the new name is not good");
    want(fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, 0x5500001001) == CUDA_ERROR_INVALID_VALUE, "a name that none has");
    want(fgv_handle_check(FGV_HANDLE_STREAM, 0x5500001000) == CUDA_ERROR_INVALID_HANDLE, "good as another kind");
    fgv_handle_set_object(FGV_HANDLE_GRAPH_EXEC, 0x5500001000, &object);
    want(fgv_handle_object(FGV_HANDLE_GRAPH_EXEC, 0x5500001000) == &object, "wrong object");
    fgv_handle_drop(FGV_HANDLE_GRAPH_EXEC, 0x5500001000);
    fgv_handle_drop(FGV_HANDLE_GRAPH_EXEC, 0x5500001000);
    want(fgv_handle_check(FGV_HANDLE_GRAPH_EXEC, 0x5500001000) == CUDA_ERROR_INVALID_VALUE, "dropped and still there");
    want(fgv_handle_new(FGV_HANDLE_GRAPH_EXEC, &next) == CUDA_SUCCESS && next != renamed, "an old number again");
    want((next & 0xffffff) == (renamed & 0xffffff), "the place is not used again");

    static const uint64_t bad[] = {0, 1, 2, 0x1000, UINT64_MAX, 0x7fff00000000, UINT64_C(0x42) << 56 | 0xffffff};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        want(fgv_handle_check(FGV_HANDLE_STREAM, bad[i]) == CUDA_ERROR_INVALID_HANDLE, "good and is not");
    }

    pthread_t threads[NR_THREADS];
    for (int i = 0; i < NR_THREADS; i++) {
        pthread_create(&threads[i], NULL, churn, NULL);
    }
    for (int i = 0; i < NR_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
