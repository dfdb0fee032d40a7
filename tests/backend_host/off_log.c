/*
 * Stands for backend_host/channels before a worker on softgpu, whose kernels cannot be taken off: it writes down what
 * it is asked for, `h` or `l` (halt, let go on), in the file FAIRGV_OFF_LOG, and in one with the user's number
 * behind a dot, and refuses those of FAIRGV_OFF_REFUSED. Each takes FAIRGV_OFF_TAKES_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channels.h"

static bool write_down(const char *path, char letter)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const bool is_written = write(file, &letter, 1) == 1;
    close(file);
    return is_written;
}

struct fgv_channels_answer fgv_channels_set_off(bool is_off)
{
    const char *path = getenv("FAIRGV_OFF_LOG"), *refused = getenv("FAIRGV_OFF_REFUSED");
    const char letter = is_off ? 'h' : 'l';
    char own_path[PATH_MAX];
    snprintf(own_path, sizeof(own_path), "%s.%u", path, geteuid());
    struct fgv_channels_answer answer = {.error = write_down(path, letter) && write_down(own_path, letter) ? 0 : EIO};
    const char *takes_ms = getenv("FAIRGV_OFF_TAKES_MS");
    usleep(takes_ms ? (useconds_t)atoi(takes_ms) * 1000u : 0);
    if (refused && strchr(refused, letter)) {
        answer.status = 0x1b;
    }
    return answer;
}
