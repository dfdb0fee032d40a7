/* What the page's floor calls of others, for a program that has the page alone: no time passes, and no bell rings. */
#ifndef TESTS_PAGE_ALONE_H
#define TESTS_PAGE_ALONE_H

#include "page/bell.h"
#include "page/control.h"

uint64_t fgw_clock_ns(void)
{
    return 0;
}

void fgw_bell_ring(_Atomic uint32_t *bell)
{
    (void)bell;
}

void fgw_control_ring_bell(struct fgw_control *at)
{
    (void)at;
}

#endif
