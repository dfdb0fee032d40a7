/*
 * What the servers and the load agree on: messages of a fixed length, whose answers have one, too. A message that
 * begins with SERVER_QUIT ends the server.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_SERVER_H
#define BENCHMARKS_GLOOP_PROGRAMS_SERVER_H

#include <stdint.h>

#define SERVER_QUIT 0xffffffffu /* as a float it is none that a matrix has */

enum {
    ECHO_BYTES = 4096,
    MATRIX_EDGE = 256,
    MATRIX_BYTES = MATRIX_EDGE * MATRIX_EDGE * 4, /* of one: a message has two, its answer their product */
};

#endif
