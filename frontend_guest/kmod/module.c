// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's kernel module: device files for the memory that a virtual machine shares with its host. Two kinds, each
 * with a driver of its own: region.c the region, memory.c what grows behind it. What they offer to programs is told in
 * ivshmem/device.h.
 */
#include <linux/module.h>
#include <linux/pci.h>

#include "drivers.h"
#include "node.h"

static int __init fgv_module_begin(void)
{
    int error = fgv_nodes_begin();

    if (error) {
        return error;
    }
    error = pci_register_driver(&fgv_region_driver);
    if (error) {
        goto no_region_driver;
    }
    error = pci_register_driver(&fgv_memory_driver);
    if (error) {
        goto no_memory_driver;
    }
    return 0;

no_memory_driver:
    pci_unregister_driver(&fgv_region_driver);
no_region_driver:
    fgv_nodes_end();
    return error;
}

static void __exit fgv_module_end(void)
{
    pci_unregister_driver(&fgv_memory_driver);
    pci_unregister_driver(&fgv_region_driver);
    fgv_nodes_end();
}

module_init(fgv_module_begin);
module_exit(fgv_module_end);

MODULE_DESCRIPTION("FairGV: memory shared with the host, its interrupts, and access to both");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
