/* See go_over.h. */
#include "page/go_over.h"

#include <string.h>

#include "page/grant.h"
#include "page/motion.h"
#include "page/room.h"

void fgw_grantee_go_over(struct fgw_grantee *grantee, struct fgw_grantee *to)
{
    struct fgw_worker_slot *slot = to->slot;
    const bool is_suspended = fgw_room_is_suspended(grantee);
    const uint32_t epoch = atomic_load(&slot->epoch), is_in = atomic_load(&slot->is_in);
    memcpy(slot, grantee->slot, sizeof(*slot));
    atomic_store(&slot->epoch, epoch);
    atomic_store(&slot->is_in, is_in);
    atomic_store(&slot->keeps, FGW_KEEPS_NOT);
    atomic_store(&slot->refused_bytes, 0);
    atomic_store(&slot->displaced_since_ns, 0);
    atomic_store(&slot->returned, 0);
    atomic_store(&slot->bound, 0);
    atomic_store(&slot->ahead_bytes, 0);
    to->client = grantee->client;
    if (!is_suspended) {
        fgw_room_return(to);
    }
    atomic_store(&to->account->allocated_bytes[to->slot_index],
                 atomic_load(&grantee->account->allocated_bytes[grantee->slot_index]));
    fgw_grantee_detach(grantee);
    *grantee = *to;
    fgw_motion_tell(grantee, FGW_STAGE_RUNS); /* last: the daemon takes the slot before away */
}
