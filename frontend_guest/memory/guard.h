/* Addresses of the worker's at which the program shall have nothing of its own. */
#ifndef FRONTEND_GUEST_GUARD_H
#define FRONTEND_GUEST_GUARD_H

#include <stdint.h>

enum fgv_guard {
    FGV_GUARDED,   /* they are mapped here without access: no allocation of the program's can come to lie there */
    FGV_UNGUARDED, /* the system has limits on address space */
    FGV_TAKEN,     /* something lies there already */
};

/* Guards whole pages; munmap() ends it. */
enum fgv_guard fgv_guard(uint64_t address, uint64_t bytes);

#endif
