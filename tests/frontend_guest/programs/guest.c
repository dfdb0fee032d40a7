/* What a program does with the library, in small scenes; prints what it got. Run as: guest SCENE */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_api/fatbin.h"
#include "cuda_api/prototypes.h"
#include "frontend_guest/include/fairgv.h"

#define NR_THREADS 300

static CUcontext context;
static CUdeviceptr memory;
static const size_t memory_bytes = 40u << 20;

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) {
        return;
    }
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("%s: %s\n", what, name);
    exit(1);
}

static void say(const char *what, CUresult result)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("%s: %s\n", what, name);
}

static void begin(void)
{
    CUdevice device;
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "retain");
    must(cuCtxSetCurrent(context), "set current");
}

static void begin_with_memory(void)
{
    begin();
    must(cuMemAlloc_v2(&memory, memory_bytes), "cuMemAlloc");
}

static void scene_copies(void)
{
    static const size_t sizes[] = {1, 5, 32767, 32768, 32769, 100000, 524287, 524288, 524289, 5000001, 40u << 20};
    unsigned char *out = malloc(memory_bytes), *in = malloc(memory_bytes + 1);
    for (size_t i = 0; i < memory_bytes; i++) {
        out[i] = (unsigned char)(i * 2654435761u >> 11);
    }
    begin_with_memory();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        memset(in, 0, memory_bytes + 1);
        must(cuMemsetD8Async(memory, 0, memory_bytes, NULL), "set");
        must(cuMemcpyHtoD_v2(memory, out, sizes[i]), "to");
        must(cuMemcpyDtoH_v2(in, memory, sizes[i]), "from");
        if (memcmp(in, out, sizes[i]) != 0 || in[sizes[i]] != 0) {
            printf("%zu bytes differ\n", sizes[i]);
        }
    }
    void *pinned;
    CUdeviceptr same;
    must(cuMemHostAlloc(&pinned, 1 << 20, 0), "pinned");
    must(cuMemHostGetDevicePointer_v2(&same, pinned, 0), "device pointer");
    memcpy(pinned, out, 1 << 20);
    must(cuMemcpyHtoDAsync_v2(memory, pinned, 1 << 20, NULL), "to");
    must(cuMemcpyDtoH_v2(in, memory, 1 << 20), "from");
    printf("pinned %s, one address %s\n", memcmp(in, out, 1 << 20) == 0 ? "right" : "wrong",
           same == (CUdeviceptr)pinned ? "yes" : "no");
    must(cuMemFreeHost(pinned), "free");
    say("beyond the end", cuMemcpyHtoD_v2(memory + memory_bytes - 4, out, 8));
    say("nowhere", cuMemcpyHtoD_v2(0x12345000, out, 8));
    say("free inside", cuMemFree_v2(memory + 256));
    free(out);
    free(in);
    puts("copied");
}

/* The same there and back, as programs in rounds do. */
static void scene_rounds(void)
{
    char *data = calloc(1, memory_bytes);
    begin_with_memory();
    for (int round = 0; round < 3; round++) {
        must(cuMemcpyHtoD_v2(memory, data, 3 << 20), "to");
        must(cuMemcpyDtoH_v2(data, memory, 3 << 20), "from");
    }
    free(data);
}

static void scene_errors(void)
{
    begin_with_memory();
    must(cuMemsetD8Async(memory, 0xee, 1, NULL), "set");
    CUresult result = cuCtxSynchronize();
    say("synchronize", result);
    say("next", result == CUDA_SUCCESS ? cuCtxSynchronize() : CUDA_ERROR_INVALID_VALUE);
    say("then", cuCtxSynchronize());
    must(cuMemsetD8Async(memory, 0xdd, 1, NULL), "set");
    cuCtxSynchronize();
    say("sticky", cuCtxSynchronize());
    say("sticky again", cuMemsetD8Async(memory, 1, 1, NULL));
}

static void scene_death(void)
{
    begin_with_memory();
    must(cuMemsetD8Async(memory, 0xcc, 1, NULL), "set");
    say("waiting", cuCtxSynchronize());
    say("later", cuMemAlloc_v2(&memory, 1));
    say("local", cuCtxGetCurrent(&context));
}

static void scene_reset(void)
{
    void *pinned;
    unsigned flags;
    int active;
    CUstream stream;
    begin_with_memory();
    must(cuStreamCreate(&stream, 0), "stream");
    must(cuMemHostAlloc(&pinned, 5000, 0), "pinned");
    must(cuDevicePrimaryCtxReset_v2(0), "reset");
    say("stream", cuStreamSynchronize(stream));
    say("memory", cuMemFree_v2(memory));
    say("pinned", cuMemFreeHost(pinned));
    must(cuDevicePrimaryCtxRetain(&context, 0), "retain");
    say("stream again", cuStreamSynchronize(stream));
    say("memory again", cuMemFree_v2(memory));
    must(cuMemAlloc_v2(&memory, 100), "cuMemAlloc");
    must(cuDevicePrimaryCtxRelease_v2(0), "release");
    must(cuDevicePrimaryCtxRelease_v2(0), "release of before");
    say("released", cuMemAlloc_v2(&memory, 100));
    must(cuDevicePrimaryCtxGetState(0, &flags, &active), "state");
    say("released twice", cuDevicePrimaryCtxRelease_v2(0));
    printf("active %d\n", active);
}

static void scene_silent_daemon(void)
{
    begin_with_memory();
    must(cuMemsetD8Async(memory, 0xaa, 1, NULL), "set");
    say("waiting", cuCtxSynchronize());
    say("later", cuCtxSynchronize());
}

static void scene_silent_host(void)
{
    begin_with_memory();
    must(cuMemsetD8Async(memory, 0xab, 1, NULL), "set");
    say("waiting", cuCtxSynchronize());
    say("later", cuCtxSynchronize());
}

static void *thread_run(void *unused)
{
    (void)unused;
    must(cuCtxSetCurrent(context), "set current");
    for (int i = 0; i < 20; i++) {
        must(cuStreamSynchronize(NULL), "synchronize");
        must(cuMemsetD8Async_ptsz(memory, 1, 1, NULL), "set");
    }
    must(cuStreamSynchronize_ptsz(NULL), "synchronize");
    return NULL;
}

static void scene_threads(void)
{
    pthread_t threads[NR_THREADS];
    pthread_attr_t attributes;
    begin_with_memory();
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    for (int i = 0; i < NR_THREADS; i++) {
        if (pthread_create(&threads[i], &attributes, thread_run, NULL) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < NR_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    puts("joined");
}

static void scene_fork(void)
{
    begin_with_memory();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        say("child synchronize", cuCtxSynchronize());
        say("child init", cuInit(0));
        fflush(stdout);
        exit(0); /* the parent's client must survive it */
    }
    waitpid(child, NULL, 0);
    say("parent", cuCtxSynchronize());
}

static void scene_fork_first(void)
{
    pid_t child = fork();
    if (child == 0) {
        begin();
        say("child", cuCtxSynchronize());
        fflush(stdout);
        exit(0);
    }
    waitpid(child, NULL, 0);
}

static void scene_launch(void)
{
    CUmodule module;
    CUfunction function, missing;
    char *ptx = malloc(200001);
    memset(ptx, ' ', 200000);
    memcpy(ptx, ".version 7.0", 12);
    ptx[200000] = '\0';
    begin();
    must(cuModuleLoadData(&module, ptx), "load");
    free(ptx);
    must(cuModuleGetFunction(&function, module, "kernel"), "function");
    say("missing", cuModuleGetFunction(&missing, module, "nothing"));
    unsigned long long first = 0x1122334455667788;
    unsigned second = 0xabcdef01;
    void *parameters[] = {&first, &second};
    must(cuLaunchKernel(function, 2, 3, 4, 8, 4, 2, 100, NULL, parameters, NULL), "launch");
    unsigned char packed[12];
    size_t packed_bytes = sizeof(packed);
    memcpy(packed, &first, 8);
    memcpy(packed + 8, &second, 4);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes,
                     CU_LAUNCH_PARAM_END};
    must(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, NULL, extra), "launch");
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 1};
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, &attribute, 1};
    must(cuLaunchKernelEx(&config, function, parameters, NULL), "launch");
    must(cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters), "launch");
    say("too many to run at once", cuLaunchCooperativeKernel(function, 60000, 60000, 1, 32, 1, 1, 0, NULL, parameters));
    say("no grid", cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    say("block dimension 4096", cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, NULL, parameters, NULL));
    say("more threads than the function takes",
        cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, NULL, parameters, NULL));
    say("shared memory", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1001, NULL, parameters, NULL));
    say("no parameters", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    say("no function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    say("no stream", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x5000, parameters, NULL));
    say("no image", cuModuleLoadData(&module, "this is no image"));
    must(cuCtxSynchronize(), "synchronize");
}

/* The fat binary in the file that IMAGE names: as it is, in wrappers, linked from itself, for a device named by hand.
 */
static void scene_images(void)
{
    static char image[1 << 20];
    const void *prelinked[] = {image, NULL};
    const struct fgv_fatbin_wrapper plain = {FGV_FATBIN_WRAPPER_MAGIC, 1, image, NULL};
    const struct fgv_fatbin_wrapper linked = {FGV_FATBIN_WRAPPER_MAGIC, 2, image, prelinked};
    CUjit_option option = CU_JIT_TARGET;
    void *target = (void *)75;
    CUmodule module;
    CUlibrary library;
    FILE *file = fopen(getenv("IMAGE"), "rb");
    if (!file || fread(image, 1, sizeof(image), file) == 0) {
        exit(2);
    }
    fclose(file);
    begin();
    must(cuModuleLoadData(&module, image), "plain");
    must(cuModuleLoadData(&module, &plain), "in a wrapper");
    must(cuModuleLoad(&module, getenv("IMAGE")), "from a file");
    must(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0), "as a library");
    must(cuModuleLoadDataEx(&module, image, 1, &option, &target), "for a target");
    must(cuModuleLoadData(&module, &linked), "linked");
}

static void steps(CUstream stream, int nr)
{
    for (int i = 0; i < nr; i++) {
        CUdeviceptr one, two;
        must(cuMemAllocAsync(&one, 1000, stream), "first");
        must(cuMemAllocAsync(&two, 2000, stream), "second");
        must(cuMemFreeAsync(one, stream), "free first");
        must(cuMemFreeAsync(two, stream), "free second");
    }
}

/* Memory that a stream freed is had again there without a word to the host, once the program lets the pool keep any. */
static void scene_pools(void)
{
    CUmemoryPool pool;
    CUstream stream;
    cuuint64_t threshold = 2500;
    CUdeviceptr address;
    begin();
    must(cuDeviceGetDefaultMemPool(&pool, 0), "pool");
    must(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "stream");
    steps(NULL, 2);
    must(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "threshold of one");
    steps(NULL, 2);
    threshold = UINT64_MAX;
    must(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "threshold of all");
    steps(NULL, 1000);
    steps(stream, 1000);
    must(cuMemAllocAsync(&address, 1000, stream), "again");
    must(cuMemFreeAsync(address, stream), "free");
    say("freed twice", cuMemFreeAsync(address, stream));
    must(cuStreamDestroy_v2(stream), "destroy");
    must(cuMemPoolTrimTo(pool, 0), "trim");
    say("left over", cuMemFree_v2(address));
}

static void *attach_run(void *word)
{
    must(cuCtxSetCurrent(context), "set current");
    must(fairgv_yield_attach((CUdeviceptr)(uintptr_t)word), "attach");
    return NULL;
}

/* Two threads attach a word each in one context, of memory that the worker sees as one piece. */
static void scene_words(void)
{
    pthread_t threads[2];
    CUdeviceptr words[2];
    begin();
    for (int i = 0; i < 2; i++) {
        must(cuMemAlloc_v2(&words[i], 512), "word");
        if (pthread_create(&threads[i], NULL, attach_run, (void *)(uintptr_t)words[i]) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        must(cuMemFree_v2(words[i]), "free");
    }
    puts("freed");
}

/* A word in memory of a pool, which the program frees and has again at once. */
static void scene_pooled_word(void)
{
    CUmemoryPool pool;
    cuuint64_t threshold = UINT64_MAX;
    CUdeviceptr word, again;
    begin();
    must(cuDeviceGetDefaultMemPool(&pool, 0), "pool");
    must(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "threshold");
    must(cuMemAllocAsync(&word, 1000, NULL), "word");
    must(fairgv_yield_attach(word), "attach");
    must(cuMemFreeAsync(word, NULL), "free");
    must(cuMemAllocAsync(&again, 1000, NULL), "again");
    puts(again == word ? "had again" : "elsewhere");
}

static void scene_output(void)
{
    begin_with_memory();
    printf("before\n");
    must(cuMemsetD8Async(memory, 0xbb, 1, NULL), "set");
    must(cuCtxSynchronize(), "synchronize");
    must(cuCtxSynchronize(), "synchronize");
    printf("after\n");
}

static void scene_facts(void)
{
    char name[64];
    int major, minor, bad;
    size_t bytes;
    CUdevice device;
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDeviceGetName(name, sizeof(name), device), "name");
    must(cuDeviceComputeCapability(&major, &minor, device), "capability");
    must(cuDeviceTotalMem_v2(&bytes, device), "memory");
    printf("%s, %d.%d, %zu bytes\n", name, major, minor, bytes);
    say("attribute", cuDeviceGetAttribute(&bad, (CUdevice_attribute)191, device));
    say("device", cuDeviceGet(&device, 99));
    say("no context", cuMemAlloc_v2(&memory, 1));
}

static void scene_init(void)
{
    int count = -1;
    say("count before", cuDeviceGetCount(&count));
    say("cuInit", cuInit(0));
    if (cuDeviceGetCount(&count) == CUDA_SUCCESS) {
        printf("%d devices\n", count);
    }
}

static void scene_use(void)
{
    begin();
    say("use", cuMemAlloc_v2(&memory, 1));
    say("use again", cuCtxSynchronize());
}

/* Pins as much as there is, in five steps; the last that came is copied to the device and back. */
static void scene_pin(void)
{
    enum { STEP_BYTES = 8 << 20 };
    unsigned char *last = NULL;
    void *block;
    begin_with_memory();
    for (unsigned i = 0; i < 5; i++) {
        CUresult result = cuMemHostAlloc(&block, STEP_BYTES, 0);
        say("pin", result);
        last = result == CUDA_SUCCESS ? block : last;
    }
    if (!last) {
        return;
    }
    for (size_t i = 0; i < STEP_BYTES; i++) {
        last[i] = (unsigned char)(i * 2654435761u >> 11);
    }
    must(cuMemcpyHtoDAsync_v2(memory, last, STEP_BYTES, NULL), "to");
    must(cuCtxSynchronize(), "synchronize");
    memset(last, 0, STEP_BYTES);
    must(cuMemcpyDtoHAsync_v2(last, memory, STEP_BYTES, NULL), "from");
    must(cuCtxSynchronize(), "synchronize");
    size_t nr_wrong = 0;
    for (size_t i = 0; i < STEP_BYTES; i++) {
        nr_wrong += last[i] != (unsigned char)(i * 2654435761u >> 11);
    }
    printf("%zu wrong\n", nr_wrong);
    must(cuMemFreeHost(last), "free");
    say("again", cuMemHostAlloc(&block, STEP_BYTES, 0));
}

/* Memory of the program's own becomes memory that the device reaches. */
static void scene_register(void)
{
    enum { BYTES = 8 << 20 };
    begin();
    unsigned char *own = aligned_alloc(4096, 2 * BYTES);
    CUdeviceptr device;
    memset(own, 7, 2 * BYTES);
    for (unsigned i = 0; i < 2; i++) {
        must(cuMemHostRegister_v2(own + i * BYTES, BYTES, 0), "register");
        say("pointer", cuMemHostGetDevicePointer_v2(&device, own + i * BYTES, 0));
    }
    own[BYTES] = 9;
    printf("%d %d\n", *(unsigned char *)device, own[BYTES + 1]);
    for (unsigned i = 0; i < 2; i++) {
        must(cuMemHostUnregister(own + i * BYTES), "unregister");
    }
    printf("%d %d\n", own[BYTES], own[2 * BYTES - 1]);
    free(own);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenes[] = {
        {"copies", scene_copies},
        {"rounds", scene_rounds},
        {"errors", scene_errors},
        {"death", scene_death},
        {"threads", scene_threads},
        {"fork", scene_fork},
        {"fork-first", scene_fork_first},
        {"launch", scene_launch},
        {"images", scene_images},
        {"pools", scene_pools},
        {"words", scene_words},
        {"pooled-word", scene_pooled_word},
        {"output", scene_output},
        {"facts", scene_facts},
        {"init", scene_init},
        {"use", scene_use},
        {"reset", scene_reset},
        {"silent-daemon", scene_silent_daemon},
        {"silent-host", scene_silent_host},
        {"pin", scene_pin},
        {"register", scene_register},
    };
    for (size_t i = 0; argc > 1 && i < sizeof(scenes) / sizeof(*scenes); i++) {
        if (strcmp(argv[1], scenes[i].name) == 0) {
            scenes[i].run();
            return 0;
        }
    }
    return 2;
}
