/* A space: processes that use the devices together, by a name in their environment (docs/softgpu.md). */
#ifndef SOFTGPU_SPACE_H
#define SOFTGPU_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#define SGP_SPACE_NUMBER_BITS 22

struct sgp_space {
    bool is_there;   /* this process is in one */
    bool is_low;     /* its waiting blocks begin behind those of others that are not low */
    uint32_t number; /* of the space: a hash of its name, by which locks know it (run.c) */
};

/* Reads the environment, once. False: a setting is rubbish, and one line on the standard error says which. */
bool sgp_space_open(void);
const struct sgp_space *sgp_space(void);

#endif
