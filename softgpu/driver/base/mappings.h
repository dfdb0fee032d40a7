/* The mappings of this process, as the kernel of the host lists them. */
#ifndef SOFTGPU_MAPPINGS_H
#define SOFTGPU_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

struct sgp_mapping {
    uintptr_t start;
    uintptr_t end;
    bool is_writable;
    bool is_shared; /* with other processes, or with children */
};

/* Calls visit() for each, in the order of addresses, until it says false; visit() may unmap the one that it is given.
 * False: it said so, or /proc does not tell. */
bool sgp_mappings_visit(bool (*visit)(const struct sgp_mapping *mapping, void *what), void *what);

#endif
