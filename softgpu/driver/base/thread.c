/* See thread.h. */
#include "base/thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM 64
#define NUMBERS   "NSpid:" /* a thread's in each namespace, the innermost last */

bool sgp_thread_begin(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t blocked, before;
    int failed;

    /* The program's signals are the program's threads' affair. Faults of kernels must not be blocked: the kernel would
     * kill us. */
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    failed = pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* The number that a thread has in its own namespace; 0: it has gone. */
static int inner_number(int process, int thread)
{
    char path[PATH_ROOM], *line = NULL;
    size_t room = 0;
    FILE *status;
    int inner = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", process, thread);
    status = fopen(path, "re");
    while (status && !inner && getline(&line, &room, status) > 0) {
        const char *last = strncmp(line, NUMBERS, strlen(NUMBERS)) ? NULL : strrchr(line, '\t');

        inner = last ? atoi(last) : 0;
    }
    free(line);
    if (status) {
        fclose(status);
    }
    return inner;
}

int sgp_thread_find(int process, int inner, int *number)
{
    const struct dirent *entry;
    char path[PATH_ROOM];
    int found = -1;
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%d/task", process);
    threads = opendir(path);
    while (threads && found < 0 && (entry = readdir(threads))) {
        if (inner_number(process, atoi(entry->d_name)) == inner) {
            *number = atoi(entry->d_name);
            found = openat(dirfd(threads), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        }
    }
    if (threads) {
        closedir(threads);
    }
    return found;
}

/* What is in a thread's folder goes with it, and does not come back with another one of its number. */
bool sgp_thread_lives(int descriptor)
{
    return !faccessat(descriptor, "status", F_OK, 0);
}
