#include "controls.h"

#define CONTROL_SET_TIMESLICE 0xa06c0103u
#define CONTROL_GET_TIMESLICE 0xa06c0104u
#define CONTROL_PREEMPT       0xa06c0105u

struct parameters_preempt {
    uint8_t waits, has_limit;
    uint32_t limit_us;
};

_Static_assert(sizeof(struct parameters_preempt) == 8, "as the driver has it");

struct fgv_channels_answer controls_timeslice(uint64_t *us)
{
    *us = 0;
    return fgv_channels_control(CONTROL_GET_TIMESLICE, us, sizeof(*us));
}

struct fgv_channels_answer controls_set_timeslice(uint64_t us)
{
    return fgv_channels_control(CONTROL_SET_TIMESLICE, &us, sizeof(us));
}

struct fgv_channels_answer controls_preempt(uint32_t limit_us)
{
    struct parameters_preempt parameters = {.waits = 1, .has_limit = 1, .limit_us = limit_us};
    return fgv_channels_control(CONTROL_PREEMPT, &parameters, sizeof(parameters));
}
