/*
 * The device fairgv-memory, where the virtual machine has one: memory behind the region, which it maps when it is
 * asked. The kernel module offers it to users of its group (ivshmem/device.h); without the module root's programs write
 * to its registers, which are defined in docs/specs/fairgv-memory.rst of qemu_patches. What is done with the memory is
 * in window.c.
 */
#ifndef FRONTEND_GUEST_GROWTH_H
#define FRONTEND_GUEST_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

enum fgv_growth_denial { FGV_GROWTH_ALLOWED, FGV_GROWTH_NOT_IN_GROUP, FGV_GROWTH_NO_MODULE };

struct fgv_growth {
    int window;                  /* the file with its memory */
    volatile uint8_t *registers; /* NULL: the module has them, and is asked through the file */
    uint64_t window_bytes;       /* 0: there is no device */
    enum fgv_growth_denial denial;
};

/* Finds the device: that in the folder FAIRGV_MEMORY, which has its resource files, else, unless the region is named as
 * well, the module's first one, else the first one on the PCI bus. False: there is none, or it is not for this user. */
bool fgv_growth_open(struct fgv_growth *growth);
void fgv_growth_close(struct fgv_growth *growth);
/* Says so, where there is a device that is not for this user. */
void fgv_growth_explain(const struct fgv_growth *growth);

/* Bytes of the window that are memory now, from its start on. */
uint64_t fgv_growth_mapped(const struct fgv_growth *growth);
/* Asks for so many in all and waits for the end of that; false: refused, or nobody is there. One client at a time. */
bool fgv_growth_ask(const struct fgv_growth *growth, uint64_t bytes);
/* Maps this part of the window, whose first byte belongs at `window`. */
bool fgv_growth_map(const struct fgv_growth *growth, uint8_t *window, uint64_t from, uint64_t to);

#endif
