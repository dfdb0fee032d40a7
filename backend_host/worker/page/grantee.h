#ifndef BACKEND_HOST_GRANTEE_H
#define BACKEND_HOST_GRANTEE_H

#include "page/layout.h"

/* cffi: begin */
/* This is a worker's private view. */
struct fgv_client;
struct fgw_grantee {
    struct fgw_control *control;
    struct fgw_decided_vgpu *decided; /* of its vGPU, as what follows */
    struct fgw_account *account;
    struct fgw_seat *seat;
    struct fgw_worker_slot *slot;
    struct fgv_client *client; /* whose entry shows the guest what is counted for this worker; NULL: none */
    uint32_t number;           /* of the vGPU: index + 1, as in the grant word */
    uint32_t slot_index;
    uint32_t epoch;              /* of the grant that it goes by: see apart.h */
    uint32_t nr_multiprocessors; /* of the device, for one in a space; 0: not known */
    bool is_user;
    bool is_waiting;
    bool is_ahead;        /* its slice came before the turn of who stood before it, as its vGPU is critical */
    uint64_t ahead_start; /* the start of the slice of which that is known */
    uint64_t waiting_since_ns;
    uint64_t turn_waited_ns; /* for this turn; 0: it had it at once */
    uint64_t put_off_ns;     /* its last turn ended then, while it was at work; 0: it had nothing to do */
    /* How often its client waits: answers and time of its turns, of this one from here on and of those before. What a
     * turn was held for without use is left out: the later the client's CPU comes to it, the longer that is. */
    uint64_t turn_since_ns;
    uint64_t turn_held_ns;
    uint64_t turn_spared_ns; /* of this turn, not charged as another vGPU's work was in the way */
    uint64_t turn_round_trips;
    uint64_t judged_ns;
    uint64_t judged_round_trips;
};
/* cffi: end */

#endif
