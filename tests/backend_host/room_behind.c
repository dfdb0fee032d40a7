/* How long room stands behind a round, for test_room_behind.py: functions that a library can be asked for. */
#include "turn/room_behind.h"

static struct fgv_habit pauses;

void begin(void)
{
    pauses = (struct fgv_habit){.mean_ns = 0};
}

void paused(uint64_t ns)
{
    fgv_habit_note_wait(&pauses, ns);
}

uint64_t stands_ns(void)
{
    return fgw_room_stands_ns(&pauses);
}
