// SPDX-License-Identifier: GPL-2.0
/*
 * Device files whose memory programs map: see node.h.
 *
 * The kernel's usual ways to map a BAR ask the MTRRs, in which firmware marks the hole below 4 GB as uncached, and turn
 * such a mapping into an uncached one; a hypervisor that follows the guest's page tables then makes the memory slow. So
 * page table entries are filled in here, as i915 does it for its apertures.
 *
 * A page is given at a fault only, and only while it is among the node's bytes: what is taken from a device, or goes
 * with it, costs its programs a SIGBUS.
 */
#include "node.h"

#include <linux/io.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/version.h>

#define FGV_MODE        0660
#define FGV_CHUNK_BYTES (2ul << 20)  /* mapped at a fault: what one page of page table entries describes */
#define FGV_MAGIC       0x76676166ul /* of the file system: "fagv" */

static struct vfsmount *fgv_mount;

static int fgv_begin_file_system(struct fs_context *context)
{
    return init_pseudo(context, FGV_MAGIC) ? 0 : -ENOMEM;
}

/* For the nodes' inodes. That of a device file goes with its file system, a container's say, while others have the
 * device open by files of their own. */
static struct file_system_type fgv_file_system = {
    .name = "fairgv",
    .init_fs_context = fgv_begin_file_system,
    .kill_sb = kill_anon_super,
};

int fgv_nodes_begin(void)
{
    fgv_mount = kern_mount(&fgv_file_system);
    return PTR_ERR_OR_ZERO(fgv_mount);
}

void fgv_nodes_end(void)
{
    kern_unmount(fgv_mount);
}

static void fgv_node_free(struct kref *kref)
{
    struct fgv_node *node = container_of(kref, struct fgv_node, kref);

    iput(node->inode);
    node->kind->free(node);
}

int fgv_node_init(struct fgv_node *node, const struct fgv_node_kind *kind, struct pci_dev *pdev)
{
    node->inode = alloc_anon_inode(fgv_mount->mnt_sb);
    if (IS_ERR(node->inode)) {
        return PTR_ERR(node->inode);
    }
    node->number = ida_alloc(kind->numbers, GFP_KERNEL);
    if (node->number < 0) {
        iput(node->inode);
        return node->number;
    }
    snprintf(node->name, sizeof(node->name), "%s%d", kind->prefix, node->number);
    node->kind = kind;
    node->pdev = pdev;
    node->start = pci_resource_start(pdev, FGV_BAR_MEMORY);
    kref_init(&node->kref);
    mutex_init(&node->lock);
    return 0;
}

int fgv_node_publish(struct fgv_node *node)
{
    node->misc.minor = MISC_DYNAMIC_MINOR;
    node->misc.name = node->name;
    node->misc.fops = node->kind->operations;
    node->misc.parent = &node->pdev->dev;
    node->misc.mode = FGV_MODE;
    return misc_register(&node->misc);
}

void fgv_node_unmap(struct fgv_node *node)
{
    unmap_mapping_range(node->inode->i_mapping, 0, 0, 1);
}

void fgv_node_withdraw(struct fgv_node *node)
{
    misc_deregister(&node->misc);
    mutex_lock(&node->lock);
    WRITE_ONCE(node->is_gone, true);
    fgv_node_unmap(node);
    mutex_unlock(&node->lock);
}

void fgv_node_drop(struct fgv_node *node)
{
    ida_free(node->kind->numbers, node->number);
    kref_put(&node->kref, fgv_node_free);
}

/* Runs under misc_mtx, which fgv_node_withdraw takes too: the device is there. */
int fgv_node_open(struct inode *inode, struct file *file)
{
    struct fgv_node *node = container_of(file->private_data, struct fgv_node, misc);

    file->f_mapping = node->inode->i_mapping;
    file->private_data = node;
    kref_get(&node->kref);
    return 0;
}

int fgv_node_release(struct inode *inode, struct file *file)
{
    struct fgv_node *node = file->private_data;

    kref_put(&node->kref, fgv_node_free);
    return 0;
}

struct fgv_filling {
    struct mm_struct *mm;
    unsigned long pfn;
    pgprot_t prot;
};

static int fgv_fill_entry(pte_t *pte, unsigned long address, void *context)
{
    struct fgv_filling *filling = context;

    set_pte_at(filling->mm, address, pte, pte_mkspecial(pfn_pte(filling->pfn++, filling->prot)));
    return 0;
}

/* With the lock, which whoever changes `bytes` holds. */
static bool fgv_has_pages(const struct fgv_node *node, unsigned long first, unsigned long nr)
{
    return first <= PHYS_PFN(node->bytes) && nr <= PHYS_PFN(node->bytes) - first;
}

static vm_fault_t fgv_fault(struct vm_fault *fault)
{
    struct vm_area_struct *vma = fault->vma;
    struct fgv_node *node = vma->vm_private_data;
    unsigned long first = max(fault->address & ~(FGV_CHUNK_BYTES - 1), vma->vm_start);
    unsigned long end = min((fault->address & ~(FGV_CHUNK_BYTES - 1)) + FGV_CHUNK_BYTES, vma->vm_end);
    unsigned long page = vma->vm_pgoff + PHYS_PFN(first - vma->vm_start);
    struct fgv_filling filling = {
        .mm = vma->vm_mm,
        .pfn = PHYS_PFN(node->start) + page,
        .prot = vma->vm_page_prot,
    };
    vm_fault_t result = VM_FAULT_NOPAGE;

    mutex_lock(&node->lock);
    if (node->is_gone || !fgv_has_pages(node, page, PHYS_PFN(end - first))) {
        result = VM_FAULT_SIGBUS;
    } else if (apply_to_page_range(vma->vm_mm, first, end - first, fgv_fill_entry, &filling)) {
        result = VM_FAULT_OOM;
    }
    mutex_unlock(&node->lock);
    return result;
}

static const struct vm_operations_struct fgv_vm_operations = {
    .fault = fgv_fault,
};

static void fgv_set_flags(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
    vma->vm_flags |= flags;
#else
    vm_flags_set(vma, flags);
#endif
}

int fgv_node_map(struct fgv_node *node, struct vm_area_struct *vma)
{
    bool is_there;

    if (!(vma->vm_flags & VM_SHARED)) {
        return -EINVAL;
    }
    mutex_lock(&node->lock);
    is_there = fgv_has_pages(node, vma->vm_pgoff, vma_pages(vma));
    mutex_unlock(&node->lock);
    if (!is_there) {
        return -EINVAL;
    }
    fgv_set_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
    vma->vm_private_data = node;
    vma->vm_ops = &fgv_vm_operations;
    return 0;
}
