/*
 * Stands for backend_host/channels before a worker on softgpu, whose kernels cannot be held: it writes down what it is
 * asked for, `h` or `l` (hold, let go), in the file FAIRGV_HOLD_LOG, and refuses those of FAIRGV_HOLD_REFUSED. Each
 * takes FAIRGV_HOLD_TAKES_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channels.h"

struct fgv_channels_answer fgv_channels_hold(bool is_held)
{
    const char *path = getenv("FAIRGV_HOLD_LOG"), *refused = getenv("FAIRGV_HOLD_REFUSED");
    const char letter = is_held ? 'h' : 'l';
    const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    struct fgv_channels_answer answer = {.error = write(file, &letter, 1) == 1 ? 0 : EIO};
    const char *takes_ms = getenv("FAIRGV_HOLD_TAKES_MS");
    close(file);
    usleep(takes_ms ? (useconds_t)atoi(takes_ms) * 1000u : 0);
    if (refused && strchr(refused, letter))
        answer.status = 0x1b;
    return answer;
}
