/*
 * Cases in which one process takes another off its devices and puts it back. Both do what lines of their standard input
 * say, and answer each with a line, so that a test may let anything happen in between.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_api/checkpoint.h"
#include "driver_cases.h"

#define NR_WORDS (UINT32_C(10) << 20)

/* A line's words, empty where there is none; false: there are no more lines. */
static bool hear(char words[3][64])
{
    char line[256];

    memset(words, 0, 3 * sizeof(*words));
    return fgets(line, sizeof(line), stdin) && sscanf(line, "%63s %63s %63s", words[0], words[1], words[2]) > 0;
}

static void say_value(const char *what, CUresult result, int value)
{
    char text[80];

    snprintf(text, sizeof(text), "%s %d", what, value);
    say(text, result);
}

/* What this process is from now on, in the kernel's eyes: another user's, as if it had been started by him. */
static void become(int user)
{
    if (setresgid((gid_t)user, (gid_t)user, (gid_t)user) || setresuid((uid_t)user, (uid_t)user, (uid_t)user) ||
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) {
        exit(2);
    }
    say_text("become");
}

/* ---- who asks ---- */

static CUuuid uuid_of(int number)
{
    CUuuid uuid = {.bytes = {(char)number}};
    int nr_devices = 0;

    CHECK(cuDeviceGetCount(&nr_devices));
    if (number < nr_devices) {
        CHECK(cuDeviceGetUuid_v2(&uuid, number));
    }
    return uuid;
}

static CUuuid uuids[10];

/* Each two digits are a pair, by ordinals. */
static CUresult restore(int process, const char *digits)
{
    CUcheckpointGpuPair pairs[32];
    CUcheckpointRestoreArgs arguments = {.gpuPairs = pairs, .gpuPairsCount = (unsigned int)strlen(digits) / 2};

    for (unsigned int i = 0; i < arguments.gpuPairsCount; i++) {
        pairs[i] =
            (CUcheckpointGpuPair){.oldUuid = uuids[digits[2 * i] - '0'], .newUuid = uuids[digits[2 * i + 1] - '0']};
    }
    return cuCheckpointProcessRestore(process, &arguments);
}

static void do_to(int process, const char *what, const char *argument)
{
    CUcheckpointLockArgs lock = {.timeoutMs = (unsigned int)atoi(argument)};
    CUcheckpointUnlockArgs wrong = {.reserved = {1}};
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    CUresult result;
    int thread = 0;

    if (!strcmp(what, "lock")) {
        say(what, cuCheckpointProcessLock(process, &lock));
    } else if (!strcmp(what, "checkpoint")) {
        say(what, cuCheckpointProcessCheckpoint(process, NULL));
    } else if (!strcmp(what, "restore")) {
        say(what, restore(process, argument));
    } else if (!strcmp(what, "unlock")) {
        say(what, cuCheckpointProcessUnlock(process, NULL));
    } else if (!strcmp(what, "wrong")) {
        say(what, cuCheckpointProcessUnlock(process, &wrong));
    } else if (!strcmp(what, "state")) {
        result = cuCheckpointProcessGetState(process, &state);
        say_value(what, result, (int)state);
    } else {
        result = cuCheckpointProcessGetRestoreThreadId(process, &thread);
        say_value(what, result, thread);
    }
}

/* "lock PID MS", "restore PID PAIRS", "state PID", ...: a call. "become UID". */
int case_ask(const char *argument)
{
    char words[3][64];

    (void)argument;
    CHECK(cuInit(0));
    for (int i = 0; i < 10; i++) {
        uuids[i] = uuid_of(i);
    }
    say_text("ready");
    while (hear(words)) {
        if (!strcmp(words[0], "become")) {
            become(atoi(words[1]));
        } else {
            do_to(atoi(words[1]), words[0], words[2]);
        }
    }
    return 0;
}

/* ---- who is asked ---- */

static volatile unsigned int *flags;
static CUdeviceptr memory;
static unsigned int value;

/* Whether all words have the value, which is one more each time, and where they are. */
static void compute(void)
{
    static unsigned int got[NR_WORDS];
    char bus[16];
    CUuuid uuid;
    bool is_right = true;

    CHECK(cuMemcpyDtoH_v2(got, memory, sizeof(got)));
    for (uint32_t i = 0; i < NR_WORDS; i++) {
        is_right = is_right && got[i] == value;
    }
    value++;
    CHECK(fill(memory, value, NR_WORDS / 256, 256));
    CHECK(cuDeviceGetUuid_v2(&uuid, 0));
    CHECK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
    printf("%s %u uuid %d bus %s\n", is_right ? "right" : "wrong", value, uuid.bytes[15], bus);
    fflush(stdout);
}

/* Also while another process is at it. */
static void *lock_itself(void *unused)
{
    CUresult result;

    do {
        result = cuCheckpointProcessLock(getpid(), NULL);
    } while (result == CUDA_ERROR_ILLEGAL_STATE);
    say("locked itself", result);
    return unused;
}

static void bear(void)
{
    pid_t child = fork();

    if (!child) {
        pause();
        _exit(0);
    }
    printf("%d\n", (int)child);
    fflush(stdout);
}

static void do_line(const char *what, const char *argument)
{
    pthread_t thread;

    if (!strcmp(what, "compute")) {
        compute();
    } else if (!strcmp(what, "hold")) {
        flags = hold(NULL);
        while (!flags[0]) {
            usleep(100);
        }
        say_text("holds");
    } else if (!strcmp(what, "query")) {
        say(what, cuStreamQuery(NULL));
    } else if (!strcmp(what, "release")) {
        flags[1] = 1;
        say_text(what);
    } else if (!strcmp(what, "lock")) {
        pthread_create(&thread, NULL, lock_itself, NULL);
        pthread_detach(thread);
    } else if (!strcmp(what, "fork")) {
        bear();
    } else if (!strcmp(what, "become")) {
        become(atoi(argument));
    } else {
        execlp("sleep", "sleep", "60", NULL);
    }
}

/* 40 MiB of memory, and a line of what to do next. With an argument there is no context, until it computes. */
int case_asked(const char *argument)
{
    char words[3][64];

    CHECK(cuInit(0));
    if (!*argument) {
        start();
        CHECK(cuMemAlloc_v2(&memory, NR_WORDS * 4));
        CHECK(cuMemsetD32_v2(memory, value, NR_WORDS));
        function("fill"); /* as long as this user has the compiler's cache */
    }
    say_text("ready");
    while (hear(words)) {
        do_line(words[0], words[1]);
    }
    return *argument ? 0 : works();
}
