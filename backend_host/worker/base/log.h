/* What a worker tells the host's operator. */
#ifndef BACKEND_HOST_LOG_H
#define BACKEND_HOST_LOG_H

/* Writes one line into the daemon's log. */
void fgw_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
