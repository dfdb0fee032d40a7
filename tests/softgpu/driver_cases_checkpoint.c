/*
 * Cases in which a process is taken off its devices and put back; what it has stays, as tests/programs/checkpoint
 * shows. From lock to unlock no other call returns, so that what they ask is asked before.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api/checkpoint.h"
#include "driver_cases.h"

static CUuuid first_uuid; /* those of others differ in the first byte and the last */

static void begin(void)
{
    start();
    CHECK(cuDeviceGetUuid_v2(&first_uuid, 0));
    first_uuid.bytes[0] ^= first_uuid.bytes[15];
    first_uuid.bytes[15] = 0;
}

static void say_state(const char *what, CUresult result)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    char text[64];

    CHECK(cuCheckpointProcessGetState(getpid(), &state));
    snprintf(text, sizeof(text), "%s %d", what, (int)state);
    say(text, result);
}

static CUresult lock(unsigned int timeout_ms)
{
    CUcheckpointLockArgs arguments = {.timeoutMs = timeout_ms};

    return cuCheckpointProcessLock(getpid(), &arguments);
}

static CUresult checkpoint(void)
{
    return cuCheckpointProcessCheckpoint(getpid(), NULL);
}

static CUuuid uuid_of(char number)
{
    CUuuid uuid = first_uuid;

    uuid.bytes[0] ^= (char)(number - '0');
    uuid.bytes[15] = (char)(number - '0');
    return uuid;
}

/* Each two digits are a pair: "01" goes from the machine's first device to its second. */
static CUresult restore(const char *digits)
{
    CUcheckpointGpuPair pairs[8];
    CUcheckpointRestoreArgs arguments = {.gpuPairs = pairs, .gpuPairsCount = (unsigned int)strlen(digits) / 2};

    for (unsigned int i = 0; i < arguments.gpuPairsCount; i++) {
        pairs[i] = (CUcheckpointGpuPair){.oldUuid = uuid_of(digits[2 * i]), .newUuid = uuid_of(digits[2 * i + 1])};
    }
    return cuCheckpointProcessRestore(getpid(), &arguments);
}

static CUresult unlock(void)
{
    return cuCheckpointProcessUnlock(getpid(), NULL);
}

/* Which device of the machine the first one is, by UUID and by PCI. */
static void say_where(void)
{
    char bus[16];
    CUuuid uuid;

    CHECK(cuDeviceGetUuid_v2(&uuid, 0));
    CHECK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
    printf("uuid %d bus %s\n", uuid.bytes[15], bus);
    fflush(stdout);
}

/* Every call in every state. */
int case_checkpoint_states(const char *argument)
{
    CUcheckpointLockArgs reserved = {.reserved0 = 1};
    CUprocessState state;
    int tid = 0;

    (void)argument;
    say("before", cuCheckpointProcessGetState(getpid(), &state));
    begin();
    say("nowhere", cuCheckpointProcessGetState(getpid(), NULL));
    say("nobody", cuCheckpointProcessGetState(0, &state));
    CHECK(cuCheckpointProcessGetRestoreThreadId(getpid(), &tid));
    printf("thread %d\n", tid != getpid() && !tgkill(getpid(), tid, 0));
    say_state("checkpoint", checkpoint());
    say_state("restore", restore(""));
    say_state("unlock", unlock());
    say_state("reserved", cuCheckpointProcessLock(getpid(), &reserved));
    say_state("lock", cuCheckpointProcessLock(getpid(), NULL));
    say_state("lock", lock(1));
    say_state("restore", restore(""));
    say_state("checkpoint", checkpoint());
    say_state("checkpoint", checkpoint());
    say_state("lock", lock(1));
    say_state("unlock", unlock());
    say_state("restore", restore(""));
    say_state("restore", restore(""));
    say_state("unlock", unlock());
    return works();
}

/* The first of the devices goes by the pairs that the test names, one line after another. */
int case_checkpoint_pairs(const char *argument)
{
    char line[64];

    (void)argument;
    begin();
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        CHECK(lock(0));
        CHECK(checkpoint());
        say_state(line, restore(line));
        if (cuCheckpointProcessUnlock(getpid(), NULL)) {
            CHECK(restore(""));
            CHECK(unlock());
        }
        say_where();
    }
    return works();
}

/* 40 MiB are on the first device until the checkpoint, and on the second one from the restore on. */
int case_checkpoint_memory(const char *argument)
{
    CUdeviceptr memory;
    unsigned int value = 0;

    (void)argument;
    begin();
    CHECK(cuMemAlloc_v2(&memory, 40 << 20));
    CHECK(cuMemsetD32_v2(memory, 77, 10 << 20));
    say_text("allocated");
    wait_for_line();
    CHECK(lock(0));
    CHECK(checkpoint());
    say_text("checkpointed");
    wait_for_line();
    say_state("restore", restore("0110"));
    say_state("again", restore("0110"));
    say_state("unlock", unlock());
    wait_for_line();
    CHECK(cuMemcpyDtoH_v2(&value, memory + (40 << 20) - 4, 4));
    printf("value %u\n", value);
    CHECK(cuMemFree_v2(memory));
    return works();
}

/* A kernel does not end before the time is over. */
int case_checkpoint_timeout(const char *argument)
{
    volatile unsigned int *flags;

    (void)argument;
    begin();
    flags = hold(NULL);
    say_state("lock", lock(20));
    say("query", cuStreamQuery(NULL));
    flags[1] = 1;
    say_state("lock", lock(0));
    say_state("unlock", unlock());
    return works();
}

static atomic_uint nr_begun, nr_ended;

static void *call(void *unused)
{
    nr_begun++;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    nr_ended++;
    return unused;
}

static pthread_t start_call(unsigned int nr)
{
    pthread_t thread;

    pthread_create(&thread, NULL, call, NULL);
    while (nr_begun < nr) {
        usleep(100);
    }
    return thread;
}

/* One thread waits for a kernel when the process is locked, another one calls later. */
int case_checkpoint_blocks(const char *argument)
{
    volatile unsigned int *flags;
    unsigned int nr_before;
    pthread_t early, late;

    (void)argument;
    begin();
    flags = hold(NULL);
    early = start_call(1);
    flags[1] = 1;
    CHECK(lock(0));
    nr_before = nr_ended;
    late = start_call(2);
    for (int i = 0; i < 100; i++) {
        CHECK(checkpoint());
        CHECK(restore(""));
    }
    printf("late %u\n", nr_ended - nr_before);
    CHECK(unlock());
    pthread_join(early, NULL);
    pthread_join(late, NULL);
    printf("ended %u\n", nr_ended);
    return works();
}

/* What a process may not have: it stays locked, and goes on when it is unlocked. */
int case_checkpoint_refused(const char *kind)
{
    CUdeviceptr memory;
    CUipcMemHandle handle;
    CUevent event;

    begin();
    if (!strcmp(kind, "managed")) {
        CHECK(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    } else if (!strcmp(kind, "variable")) {
        static const char text[] = HEADER ".visible .global .attribute(.managed) .align 4 .u32 word;\n";

        CHECK(cuModuleLoadData(&module, text));
        module = NULL;
    } else if (!strcmp(kind, "memory")) {
        CHECK(cuMemAlloc_v2(&memory, 4096));
        CHECK(cuIpcGetMemHandle(&handle, memory));
    } else {
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    }
    CHECK(lock(0));
    say_state("checkpoint", checkpoint());
    CHECK(unlock());
    return works();
}
