/* The steps of throttle.cu, one after the other. */
#include "throttle.h"

uint64_t throttle_loops(uint64_t nr_steps)
{
    uint64_t value = 0;
    for (uint64_t step = 0; step < nr_steps; step++) {
        value = throttle_step(value);
    }
    return value;
}
