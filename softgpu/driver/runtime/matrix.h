/* How the threads of a warp work on matrices together. Only runtime/ includes this. */
#ifndef SOFTGPU_RUNTIME_MATRIX_H
#define SOFTGPU_RUNTIME_MATRIX_H

#include "runtime/records.h"

/* What a thread brings, in its own frame, and where it finds what comes out. */
struct sgp_matrix_part {
    uint64_t form;
    uint32_t *registers;
    uint8_t *row;
    bool is_done;
};

/* The parts of all lanes that met for the same; NULL: a lane that is not there, or that came for something else. */
struct sgp_matrix_parts {
    struct sgp_matrix_part *of[SGP_WARP_THREADS];
};

/*
 * Meets the other threads of the warp. True: the caller is to do the work, for all of them: the others have not gone
 * on. False: it is done.
 */
bool sgp_matrix_meet(struct sgp_thread *self, struct sgp_matrix_part *part, struct sgp_matrix_parts *parts);

#endif
