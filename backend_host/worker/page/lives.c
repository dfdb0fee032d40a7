#define _GNU_SOURCE
#include "page/lives.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct flock lock_of(short kind, uint32_t place)
{
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
}

/* A shared lock is enough: whoever asks for an exclusive one is told of it. So nobody needs to open the file for
 * writing. */
int fgw_life_begin(int lives, uint32_t place)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", lives);
    const int life = open(path, O_RDONLY | O_CLOEXEC); /* a description of its own: dup() shares the lock */
    struct flock lock = lock_of(F_RDLCK, place);
    if (life >= 0 && fcntl(life, F_OFD_SETLK, &lock) != 0) {
        const int error = errno;
        close(life);
        errno = error;
        return -1;
    }
    return life;
}

bool fgw_life_has_ended(int lives, uint32_t place)
{
    struct flock lock = lock_of(F_WRLCK, place);
    return fcntl(lives, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}
