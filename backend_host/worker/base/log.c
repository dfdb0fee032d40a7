#define _GNU_SOURCE
#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int log_fd = STDERR_FILENO;

int fgw_log_apart(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    log_fd = fd < 0 ? log_fd : fd;
    return fd;
}

void fgw_log(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    dprintf(log_fd, "fairgv worker %d: %s\n", (int)getpid(), line);
}
