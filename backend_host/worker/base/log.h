/* What a worker tells the host's operator. */
#ifndef BACKEND_HOST_LOG_H
#define BACKEND_HOST_LOG_H

/* Lines go to a descriptor of their own from now on, which is returned, and leads
 * where 2 leads now. -1: as errno has it. */
int fgw_log_apart(void);

/* Writes one line into the daemon's log. */
void fgw_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
