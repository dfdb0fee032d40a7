/* The one line: see notice.h. */
#include "base/notice.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

void sgp_notice(const char *format, ...)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    char line[1024];
    va_list arguments;
    int length;

    if (atomic_flag_test_and_set(&is_said)) {
        return;
    }
    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) < 0) {
        return; /* the program has closed it */
    }
}
