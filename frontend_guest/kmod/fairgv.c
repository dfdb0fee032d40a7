// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's kernel module: an ivshmem device whose memory carries FairGV's header becomes /dev/fairgvN. What the
 * device offers is told in ivshmem/device.h. Three things that user space cannot have from sysfs:
 *
 * - The region mapped write-back. It is RAM of the host, mapped write-back there. The kernel's usual ways to map a BAR
 *   ask the MTRRs, in which firmware marks the hole below 4 GB as uncached, and turn such a mapping into an uncached
 *   one; a hypervisor that follows the guest's page tables then makes the rings slow. So page table entries are filled
 *   in here, as i915 does it for its apertures.
 * - Interrupts: a sleeping program is woken when the host rings, instead of looking now and then. They come with
 *   ivshmem-doorbell; an ivshmem-plain device has none and is mapped only.
 * - Access for users who are not root, by the file's group.
 *
 * Nothing in the region is looked at after the header's magic number: what programs and host write there is between
 * them. Whoever may open the device can read and write all of the region, so all programs that use the GPU of one
 * virtual machine can reach each other's data, as they could through sysfs.
 *
 * Wrong when: the device is bound before the host has written its header for the first time. It is then taken for
 * somebody else's; `fairgv-guest check` says how to bind it later.
 */
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>

#include "device.h"

#define FGV_MAGIC         0x3156475249414600ull /* of struct fgv_region_header, ivshmem/region.h */
#define FGV_MODE          0660
#define FGV_POSITION      8 /* registers in BAR 0, docs/specs/ivshmem-spec of QEMU */
#define FGV_DOORBELL      12
#define FGV_BAR_REGISTERS 0
#define FGV_BAR_REGION    2
#define FGV_CHUNK_BYTES   (2ul << 20) /* mapped at a fault: what one page of page table entries describes */
#define FGV_MAX_WAIT_NS   (10ull * NSEC_PER_SEC)

struct fgv_vector {
    struct fgv *fgv;
    u32 *rung;
    wait_queue_head_t waiters;
};

/* Lives until the device is gone and the last file is closed. */
struct fgv {
    struct kref kref;
    struct miscdevice misc;
    int number;
    char name[24];
    struct pci_dev *pdev;
    void __iomem *registers;
    phys_addr_t start;
    u64 bytes;
    u32 position;
    unsigned int nr_vectors;
    u32 *rung; /* a page, which programs map */
    struct fgv_vector vectors[FGV_DEVICE_MAX_VECTORS];
    struct mutex lock; /* is_gone against page tables and registers in use; inode */
    bool is_gone;
    struct inode *inode; /* whose mapping all files share, so that one call finds every page table entry */
};

static DEFINE_IDA(fgv_numbers);

static void fgv_free(struct kref *kref)
{
    struct fgv *fgv = container_of(kref, struct fgv, kref);

    if (fgv->inode)
        iput(fgv->inode);
    free_page((unsigned long)fgv->rung);
    kfree(fgv);
}

static irqreturn_t fgv_interrupt(int irq, void *context)
{
    struct fgv_vector *vector = context;

    WRITE_ONCE(*vector->rung, *vector->rung + 1);
    wake_up_all(&vector->waiters);
    return IRQ_HANDLED;
}

/* Runs under misc_mtx, which fgv_remove takes too: the device is there. */
static int fgv_open(struct inode *inode, struct file *file)
{
    struct fgv *fgv = container_of(file->private_data, struct fgv, misc);

    mutex_lock(&fgv->lock);
    if (!fgv->inode)
        fgv->inode = igrab(inode);
    mutex_unlock(&fgv->lock);
    if (!fgv->inode)
        return -ENODEV;
    file->f_mapping = fgv->inode->i_mapping;
    file->private_data = fgv;
    kref_get(&fgv->kref);
    return 0;
}

static int fgv_release(struct inode *inode, struct file *file)
{
    struct fgv *fgv = file->private_data;

    kref_put(&fgv->kref, fgv_free);
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

static vm_fault_t fgv_fault(struct vm_fault *fault)
{
    struct vm_area_struct *vma = fault->vma;
    struct fgv *fgv = vma->vm_private_data;
    unsigned long first = max(fault->address & ~(FGV_CHUNK_BYTES - 1), vma->vm_start);
    unsigned long end = min((fault->address & ~(FGV_CHUNK_BYTES - 1)) + FGV_CHUNK_BYTES, vma->vm_end);
    struct fgv_filling filling = {
        .mm = vma->vm_mm,
        .pfn = PHYS_PFN(fgv->start) + vma->vm_pgoff + PHYS_PFN(first - vma->vm_start),
        .prot = vma->vm_page_prot,
    };
    vm_fault_t result = VM_FAULT_NOPAGE;

    mutex_lock(&fgv->lock);
    if (fgv->is_gone)
        result = VM_FAULT_SIGBUS;
    else if (apply_to_page_range(vma->vm_mm, first, end - first, fgv_fill_entry, &filling))
        result = VM_FAULT_OOM;
    mutex_unlock(&fgv->lock);
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

static void fgv_clear_flags(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
    vma->vm_flags &= ~flags;
#else
    vm_flags_clear(vma, flags);
#endif
}

static int fgv_map_rung(struct fgv *fgv, struct vm_area_struct *vma)
{
    if (vma->vm_flags & VM_WRITE || vma->vm_end - vma->vm_start != PAGE_SIZE)
        return -EINVAL;
    fgv_clear_flags(vma, VM_MAYWRITE);
    return vm_insert_page(vma, vma->vm_start, virt_to_page(fgv->rung));
}

static int fgv_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct fgv *fgv = file->private_data;
    unsigned long nr_pages = vma_pages(vma);

    if (!(vma->vm_flags & VM_SHARED))
        return -EINVAL;
    if (vma->vm_pgoff == FGV_DEVICE_RUNG_OFFSET >> PAGE_SHIFT)
        return fgv_map_rung(fgv, vma);
    if (vma->vm_pgoff > PHYS_PFN(fgv->bytes) || nr_pages > PHYS_PFN(fgv->bytes) - vma->vm_pgoff)
        return -EINVAL;
    fgv_set_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
    vma->vm_private_data = fgv;
    vma->vm_ops = &fgv_vm_operations;
    return 0;
}

static long fgv_tell(struct fgv *fgv, struct fgv_device_info __user *to)
{
    struct fgv_device_info info = {
        .abi = FGV_DEVICE_ABI,
        .nr_vectors = fgv->nr_vectors,
        .region_bytes = fgv->bytes,
        .position = fgv->position,
    };

    return copy_to_user(to, &info, sizeof(info)) ? -EFAULT : 0;
}

static long fgv_wait(struct fgv *fgv, const struct fgv_device_wait __user *from)
{
    struct fgv_device_wait wait;
    struct fgv_vector *vector;
    long result;

    if (copy_from_user(&wait, from, sizeof(wait)))
        return -EFAULT;
    if (wait.vector >= fgv->nr_vectors)
        return -EINVAL;
    vector = &fgv->vectors[wait.vector];
    result = wait_event_interruptible_hrtimeout(vector->waiters,
                                                READ_ONCE(*vector->rung) != wait.seen || READ_ONCE(fgv->is_gone),
                                                ns_to_ktime(min_t(u64, wait.timeout_ns, FGV_MAX_WAIT_NS)));
    if (READ_ONCE(fgv->is_gone))
        return -ENODEV;
    return result == -ERESTARTSYS ? -EINTR : result;
}

static long fgv_ring(struct fgv *fgv, unsigned long peer)
{
    long result = 0;

    if (peer > U16_MAX)
        return -EINVAL;
    if (fgv->nr_vectors == 0)
        return -EOPNOTSUPP;
    mutex_lock(&fgv->lock);
    if (fgv->is_gone)
        result = -ENODEV;
    else
        writel((u32)peer << 16, fgv->registers + FGV_DOORBELL);
    mutex_unlock(&fgv->lock);
    return result;
}

static long fgv_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct fgv *fgv = file->private_data;

    switch (command) {
    case FGV_DEVICE_INFO:
        return fgv_tell(fgv, (void __user *)argument);
    case FGV_DEVICE_WAIT:
        return fgv_wait(fgv, (void __user *)argument);
    case FGV_DEVICE_RING:
        return fgv_ring(fgv, argument);
    default:
        return -ENOTTY;
    }
}

static const struct file_operations fgv_operations = {
    .owner = THIS_MODULE,
    .open = fgv_open,
    .release = fgv_release,
    .mmap = fgv_mmap,
    .unlocked_ioctl = fgv_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};

static bool fgv_has_magic(phys_addr_t start)
{
    void __iomem *header = ioremap(start, PAGE_SIZE);
    bool has_magic = header && readq(header) == FGV_MAGIC;

    if (header)
        iounmap(header);
    return has_magic;
}

/* As many as device and guest have; none is no error. */
static void fgv_take_interrupts(struct fgv *fgv)
{
    int nr = pci_alloc_irq_vectors(fgv->pdev, 1, FGV_DEVICE_MAX_VECTORS, PCI_IRQ_MSIX);

    for (int i = 0; i < nr; i++) {
        struct fgv_vector *vector = &fgv->vectors[i];

        vector->fgv = fgv;
        vector->rung = &fgv->rung[i];
        init_waitqueue_head(&vector->waiters);
        if (request_irq(pci_irq_vector(fgv->pdev, i), fgv_interrupt, 0, fgv->name, vector))
            break;
        fgv->nr_vectors++;
    }
}

static void fgv_give_interrupts(struct fgv *fgv)
{
    for (unsigned int i = 0; i < fgv->nr_vectors; i++)
        free_irq(pci_irq_vector(fgv->pdev, i), &fgv->vectors[i]);
    pci_free_irq_vectors(fgv->pdev);
}

static struct fgv *fgv_make(struct pci_dev *pdev)
{
    struct fgv *fgv = kzalloc(sizeof(*fgv), GFP_KERNEL);

    if (!fgv)
        return NULL;
    kref_init(&fgv->kref);
    mutex_init(&fgv->lock);
    fgv->pdev = pdev;
    fgv->start = pci_resource_start(pdev, FGV_BAR_REGION);
    fgv->bytes = pci_resource_len(pdev, FGV_BAR_REGION);
    fgv->rung = (u32 *)get_zeroed_page(GFP_KERNEL);
    if (!fgv->rung) {
        kfree(fgv);
        return NULL;
    }
    return fgv;
}

static int fgv_publish(struct fgv *fgv)
{
    fgv->misc.minor = MISC_DYNAMIC_MINOR;
    fgv->misc.name = fgv->name;
    fgv->misc.fops = &fgv_operations;
    fgv->misc.parent = &fgv->pdev->dev;
    fgv->misc.mode = FGV_MODE;
    return misc_register(&fgv->misc);
}

static int fgv_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
    struct fgv *fgv;
    int error = pcim_enable_device(pdev);

    if (error)
        return error;
    if (pci_resource_len(pdev, FGV_BAR_REGION) < PAGE_SIZE || !fgv_has_magic(pci_resource_start(pdev, FGV_BAR_REGION)))
        return -ENODEV;
    fgv = fgv_make(pdev);
    if (!fgv)
        return -ENOMEM;
    fgv->registers = pcim_iomap(pdev, FGV_BAR_REGISTERS, 0);
    fgv->number = ida_alloc(&fgv_numbers, GFP_KERNEL);
    error = !fgv->registers ? -ENOMEM : fgv->number < 0 ? fgv->number : 0;
    if (error)
        goto no_number;
    snprintf(fgv->name, sizeof(fgv->name), "fairgv%d", fgv->number);
    fgv->position = readl(fgv->registers + FGV_POSITION);
    pci_set_master(pdev);
    fgv_take_interrupts(fgv);
    pci_set_drvdata(pdev, fgv);
    error = fgv_publish(fgv);
    if (error)
        goto not_published;
    dev_info(&pdev->dev, "%s: region of %llu MiB, %u interrupts\n", fgv->name, fgv->bytes >> 20, fgv->nr_vectors);
    return 0;

not_published:
    fgv_give_interrupts(fgv);
no_number:
    if (fgv->number >= 0)
        ida_free(&fgv_numbers, fgv->number);
    kref_put(&fgv->kref, fgv_free);
    return error;
}

/* Programs may still have it open and mapped: they get SIGBUS and ENODEV from here on. */
static void fgv_remove(struct pci_dev *pdev)
{
    struct fgv *fgv = pci_get_drvdata(pdev);

    misc_deregister(&fgv->misc);
    mutex_lock(&fgv->lock);
    WRITE_ONCE(fgv->is_gone, true);
    if (fgv->inode)
        unmap_mapping_range(fgv->inode->i_mapping, 0, 0, 1);
    mutex_unlock(&fgv->lock);
    for (unsigned int i = 0; i < fgv->nr_vectors; i++)
        wake_up_all(&fgv->vectors[i].waiters);
    fgv_give_interrupts(fgv);
    ida_free(&fgv_numbers, fgv->number);
    kref_put(&fgv->kref, fgv_free);
}

static const struct pci_device_id fgv_ids[] = {{PCI_DEVICE(0x1af4, 0x1110)}, /* ivshmem; probe tells ours from others */
                                               {}};
MODULE_DEVICE_TABLE(pci, fgv_ids);

static struct pci_driver fgv_driver = {
    .name = "fairgv",
    .id_table = fgv_ids,
    .probe = fgv_probe,
    .remove = fgv_remove,
};
module_pci_driver(fgv_driver);

MODULE_DESCRIPTION("FairGV: a region shared with the host, its interrupts, and access to both");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
