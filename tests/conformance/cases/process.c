/* Processes: forks, exits with work in flight, which devices are seen. */
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

static void say_end_of(pid_t child)
{
    int status = 0;

    waitpid(child, &status, 0);
    printf("child: %s %d\n", WIFEXITED(status) ? "exited" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void use_device(void)
{
    CUdeviceptr memory = 0;
    CUcontext context = NULL;

    DO(cuInit, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc, &memory, 4096);
    say("fill", fill(memory, 3, 1024, NULL));
    say_device_bytes("filled", memory, 4096);
}

BARE(process_fork_before_init)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        use_device();
        exit(0);
    }
    say_end_of(child);
    use_device();
}

BARE(process_fork_after_init)
{
    MUST(cuInit, 0);
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        int count = -1;

        DO(cuDeviceGetCount, &count);
        DO(cuInit, 0);
        DO(cuCtxSynchronize);
        _exit(0);
    }
    say_end_of(child);
    use_device();
}

BARE(process_fork_with_context)
{
    CUdeviceptr memory = 0;
    CUcontext context = NULL;

    MUST(cuInit, 0);
    MUST(cuDevicePrimaryCtxRetain, &context, 0);
    MUST(cuCtxSetCurrent, context);
    MUST(cuMemAlloc, &memory, 4096);
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        DO(cuMemAlloc, &memory, 4096);
        DO(cuCtxSynchronize);
        DO(cuStreamSynchronize, NULL);
        _exit(0);
    }
    say_end_of(child);
    say("fill in the parent", fill(memory, 3, 1024, NULL));
    say_device_bytes("filled", memory, 4096);
}

ALONE(process_exit_with_work_in_flight)
{
    CUdeviceptr memory = device_bytes(4 << 20, 0);

    for (unsigned int i = 0; i < 20; i++) {
        must("fill", fill(memory, i, 1 << 20, NULL));
    }
    exit(7);
}

ALONE(process_exit_with_a_kernel_that_runs)
{
    hold(NULL);
    exit(8);
}

ALONE(process_exit_without_cleaning_up)
{
    CUstream stream;
    CUevent event;
    void *pinned;

    MUST(cuStreamCreate, &stream, 0);
    MUST(cuEventCreate, &event, 0);
    MUST(cuMemHostAlloc, &pinned, 10000, 0);
    device_bytes(10000, 1);
    exit(9);
}

static void at_exit(void)
{
    CUdeviceptr memory = 0;

    say("alloc at exit", CU(cuMemAlloc)(&memory, 16));
    say("synchronise at exit", CU(cuCtxSynchronize)());
}

ALONE(process_calls_at_exit)
{
    atexit(at_exit);
    exit(0);
}

static void say_devices(const char *visible)
{
    int count = -1;

    if (visible) {
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    }
    say("init", CU(cuInit)(0));
    say("count", CU(cuDeviceGetCount)(&count));
    say_number("devices", count);
}

BARE(visible_devices_first)
{
    say_devices("0");
}

BARE(visible_devices_empty)
{
    say_devices("");
}

BARE(visible_devices_none)
{
    say_devices("-1");
}

BARE(visible_devices_beyond)
{
    say_devices("99");
}

BARE(visible_devices_first_then_beyond)
{
    say_devices("0,99");
}

BARE(visible_devices_twice)
{
    say_devices("0,0");
}

BARE(visible_devices_words)
{
    say_devices("nonsense");
}

BARE(visible_devices_none_then_first)
{
    say_devices("-1,0");
}

BARE(visible_devices_uuid_unknown)
{
    say_devices("GPU-00000000-1111-2222-3333-444444444444");
}

BARE(visible_devices_uuid_known)
{
    char name[64] = "GPU-";
    CUuuid uuid;

    MUST(cuInit, 0);
    MUST(cuDeviceGetUuid, &uuid, 0);
    for (int i = 0; i < 16; i++) {
        size_t length = strlen(name);

        snprintf(name + length, sizeof(name) - length, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                 (unsigned char)uuid.bytes[i]);
    }
    setenv("CUDA_VISIBLE_DEVICES", name, 1);
    fflush(stdout);
    char *command[] = {"conformance-driver", "visible_devices_as_set", NULL};
    execv("/proc/self/exe", command);
}

BARE(visible_devices_as_set)
{
    say_devices(NULL);
}
