/* A line for the user of the program, on its standard error. */
#ifndef SOFTGPU_NOTICE_H
#define SOFTGPU_NOTICE_H

/*
 * Says what softgpu cannot do, and what helps. Once for each program: the first is what the user mends first, and a
 * library that tries a thousand images would say it a thousand times.
 */
void sgp_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
