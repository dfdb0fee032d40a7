/* The process behind the wall: wall_records.h. */
#ifndef SOFTGPU_INSIDE_H
#define SOFTGPU_INSIDE_H

/* In the forked process, which ends in it. */
__attribute__((noreturn)) void sgp_inside_main(int socket, int device, int parent);

#endif
