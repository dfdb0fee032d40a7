// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's kernel module: device files for the memory that a virtual machine shares with its host. Two kinds, each
 * with a driver of its own: region.c the region, memory.c what grows behind it. What they offer to programs is told in
 * ivshmem/device.h.
 */
#include <linux/module.h>
#include <linux/pci.h>

#include "drivers.h"

static int __init fgv_module_begin(void)
{
    int error = pci_register_driver(&fgv_region_driver);

    if (error) {
        return error;
    }
    error = pci_register_driver(&fgv_memory_driver);
    if (error) {
        pci_unregister_driver(&fgv_region_driver);
    }
    return error;
}

static void __exit fgv_module_end(void)
{
    pci_unregister_driver(&fgv_memory_driver);
    pci_unregister_driver(&fgv_region_driver);
}

module_init(fgv_module_begin);
module_exit(fgv_module_end);

MODULE_DESCRIPTION("FairGV: memory shared with the host, its interrupts, and access to both");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
