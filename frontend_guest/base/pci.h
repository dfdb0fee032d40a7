/* Devices of the virtual machine, as sysfs shows them; only root may open what is in them. */
#ifndef FRONTEND_GUEST_PCI_H
#define FRONTEND_GUEST_PCI_H

#include <stdbool.h>
#include <stddef.h>

/* Opens a resource of the first device with this number of QEMU's vendor whose file is accepted, and fills `path` with
 * the file's. A device that does not answer to its addresses yet is told to. -1: none; `denied` says that one was there
 * and could not be opened, and may be NULL. */
int fgv_pci_open(const char *device, const char *resource, bool (*accepts)(int file), char *path, size_t path_bytes,
                 bool *denied);

#endif
