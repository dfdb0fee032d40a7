/*
 * What the program's start said of its region. A service that clears its environment (clearenv) before it calls CUDA
 * for the first time has its GPU all the same; one that takes out a variable has done so on purpose.
 */
#include "base/environment.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (64u << 10)

extern char **environ;

/* The kernel's record, each variable with a 0 behind it, and one more at the end. */
static char started_with[MAX_BYTES + 2];

static void read_record(void)
{
    size_t filled = 0;
    ssize_t more = 1;
    int file = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && more > 0 && filled < MAX_BYTES) {
        more = read(file, started_with + filled, MAX_BYTES - filled);
        filled += more > 0 ? (size_t)more : 0;
    }
    if (file >= 0) {
        close(file);
    }
}

const char *fgv_environment(const char *name)
{
    if (environ && environ[0]) {
        return getenv(name);
    }
    if (started_with[0] == '\0') {
        read_record();
    }
    const size_t bytes = strlen(name);
    for (const char *entry = started_with; *entry != '\0'; entry += strlen(entry) + 1) {
        if (strncmp(entry, name, bytes) == 0 && entry[bytes] == '=') {
            return entry + bytes + 1;
        }
    }
    return NULL;
}
