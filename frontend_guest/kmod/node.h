/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A device file through which programs map BAR 2 of a device that QEMU made: RAM of the host, mapped write-back here as
 * it is there. Each kind of file embeds one of these.
 */
#ifndef FGV_NODE_H
#define FGV_NODE_H

#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci.h>

#define FGV_BAR_REGISTERS 0
#define FGV_BAR_MEMORY    2

struct fgv_node;

struct fgv_node_kind {
    const char *prefix; /* of the files' names, before their number */
    struct ida *numbers;
    const struct file_operations *operations; /* with fgv_node_open and fgv_node_release */
    void (*free)(struct fgv_node *node);
};

/* Lives until the device is gone and the last file is closed. */
struct fgv_node {
    const struct fgv_node_kind *kind;
    struct kref kref;
    struct miscdevice misc;
    int number;
    char name[24];
    struct pci_dev *pdev;
    phys_addr_t start;
    struct mutex lock; /* bytes and is_gone against page tables and registers in use */
    u64 bytes;         /* of the BAR, from its start on, that programs may map */
    bool is_gone;
    struct inode *inode; /* its own: all files share its mapping, so that one call finds every page table entry */
};

/* Around all of the below, once each. */
int fgv_nodes_begin(void);
void fgv_nodes_end(void);

/* Gives it a name, and no bytes yet. On an error there is nothing to undo. */
int fgv_node_init(struct fgv_node *node, const struct fgv_node_kind *kind, struct pci_dev *pdev);
/* From here on there is a file. */
int fgv_node_publish(struct fgv_node *node);
/* Programs may still have it open and mapped: when this has returned no register is in use, and none will be. */
void fgv_node_withdraw(struct fgv_node *node);
/* The driver's last use of it. */
void fgv_node_drop(struct fgv_node *node);

int fgv_node_open(struct inode *inode, struct file *file);
int fgv_node_release(struct inode *inode, struct file *file);
/* Maps a part of its bytes. */
int fgv_node_map(struct fgv_node *node, struct vm_area_struct *vma);
/* With the lock: no program has any of it mapped, until it touches it again and that is allowed. */
void fgv_node_unmap(struct fgv_node *node);

#endif
