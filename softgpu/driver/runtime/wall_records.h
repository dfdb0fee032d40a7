/*
 * The wall: kernels run in a process that can do nothing but run them (docs/softgpu.md says what that is against).
 *
 *     wall.c      this side: begins that process, gives it launches, serves what their kernels ask
 *     inside.c    that side: takes launches, runs them by direct.c, asks
 *     confine.c   what that process gives up before the first kernel
 *
 * Both talk by records over a pair of sockets, so that each is copied before it is looked at, and the end of one is
 * seen by the other. The process is a fork of this one: kernels, their tables and the memory that they use have the
 * same addresses. It may be taken over by any kernel; nothing that it says is believed.
 */
#ifndef SOFTGPU_WALL_RECORDS_H
#define SOFTGPU_WALL_RECORDS_H

#include "base/view.h"
#include "runtime/records.h"

#define SGP_WALL_MAX_TEXT_BYTES 4096u

/* A launch, to that process. */
struct sgp_wall_launch {
    struct sgp_grid grid;
    uint32_t nr_changes;
    struct sgp_view_change changes[SGP_VIEW_CHANGES]; /* to be made before */
    uint8_t parameters[SGP_MAX_PARAMETERS_BYTES];
};

enum sgp_wall_question { SGP_WALL_ENDED, SGP_WALL_PRINT, SGP_WALL_ALLOCATE, SGP_WALL_FREE, SGP_WALL_PLACE };

/* From that process. */
struct sgp_wall_record {
    uint32_t question;
    uint32_t text_bytes; /* of PRINT */
    uint64_t value;      /* of ENDED the CUresult, of ALLOCATE bytes, of FREE the address, of PLACE the one
                          * that is left, and in its high half the wish */
    char text[SGP_WALL_MAX_TEXT_BYTES];
};

/* The answer to ALLOCATE, FREE and PLACE. */
struct sgp_wall_answer {
    uint64_t address; /* 0: no; of PLACE the multiprocessor */
    uint64_t bytes;   /* of memory whose access changed */
};

#endif
