/* SPDX-License-Identifier: GPL-2.0 */
/* The drivers of this module. */
#ifndef FGV_DRIVERS_H
#define FGV_DRIVERS_H

#include <linux/pci.h>

extern struct pci_driver fgv_region_driver;
extern struct pci_driver fgv_memory_driver;

#endif
