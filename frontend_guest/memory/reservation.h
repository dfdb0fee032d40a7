/* Addresses that are reserved on the host. */
#ifndef FRONTEND_GUEST_RESERVATION_H
#define FRONTEND_GUEST_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the reservation that begins here holds its addresses in this process, too. */
bool fgv_reservation_is_guarded(uint64_t address);

#endif
