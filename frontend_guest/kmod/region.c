// SPDX-License-Identifier: GPL-2.0
/*
 * An ivshmem device whose memory carries FairGV's header becomes /dev/fairgvN. Three things that user space cannot have
 * from sysfs: the region mapped write-back (node.c tells how), access for users who are not root, by the file's group,
 * and interrupts: a sleeping program is woken when the host rings, instead of looking now and then. They come with
 * ivshmem-doorbell; an ivshmem-plain device has none and is mapped only.
 *
 * Nothing in the region is looked at after the header's magic number: what programs and host write there is between
 * them. Whoever may open the device can read and write all of the region, so all programs that use the GPU of one
 * virtual machine can reach each other's data, as they could through sysfs.
 *
 * Wrong when: the device is bound before the host has written its header for the first time. It is then taken for
 * somebody else's; `fairgv-guest check` says how to bind it later.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>

#include "device.h"
#include "drivers.h"
#include "node.h"

#define FGV_MAGIC       0x3156475249414600ull /* of struct fgv_region_header, ivshmem/region.h */
#define FGV_POSITION    8                     /* registers in BAR 0, docs/specs/ivshmem-spec of QEMU */
#define FGV_DOORBELL    12
#define FGV_MAX_WAIT_NS (10ull * NSEC_PER_SEC)

struct fgv_vector {
    u32 *rung;
    wait_queue_head_t waiters;
};

struct fgv_region {
    struct fgv_node node;
    void __iomem *registers;
    u32 position;
    unsigned int nr_vectors;
    u32 *rung; /* a page, which programs map */
    struct fgv_vector vectors[FGV_DEVICE_MAX_VECTORS];
};

static DEFINE_IDA(fgv_region_numbers);

static struct fgv_region *fgv_region_of(const struct file *file)
{
    struct fgv_node *node = file->private_data;

    return container_of(node, struct fgv_region, node);
}

static void fgv_region_free(struct fgv_node *node)
{
    struct fgv_region *region = container_of(node, struct fgv_region, node);

    free_page((unsigned long)region->rung);
    kfree(region);
}

static irqreturn_t fgv_interrupt(int irq, void *context)
{
    struct fgv_vector *vector = context;

    WRITE_ONCE(*vector->rung, *vector->rung + 1);
    wake_up_all(&vector->waiters);
    return IRQ_HANDLED;
}

static void fgv_clear_flags(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
    vma->vm_flags &= ~flags;
#else
    vm_flags_clear(vma, flags);
#endif
}

static int fgv_map_rung(struct fgv_region *region, struct vm_area_struct *vma)
{
    if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_WRITE || vma->vm_end - vma->vm_start != PAGE_SIZE) {
        return -EINVAL;
    }
    fgv_clear_flags(vma, VM_MAYWRITE);
    return vm_insert_page(vma, vma->vm_start, virt_to_page(region->rung));
}

static int fgv_region_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct fgv_region *region = fgv_region_of(file);

    if (vma->vm_pgoff == FGV_DEVICE_RUNG_OFFSET >> PAGE_SHIFT) {
        return fgv_map_rung(region, vma);
    }
    return fgv_node_map(&region->node, vma);
}

static long fgv_tell(struct fgv_region *region, struct fgv_device_info __user *to)
{
    struct fgv_device_info info = {
        .abi = FGV_DEVICE_ABI,
        .nr_vectors = region->nr_vectors,
        .region_bytes = region->node.bytes,
        .position = region->position,
    };

    return copy_to_user(to, &info, sizeof(info)) ? -EFAULT : 0;
}

static long fgv_wait(struct fgv_region *region, const struct fgv_device_wait __user *from)
{
    struct fgv_device_wait wait;
    struct fgv_vector *vector;
    long result;

    if (copy_from_user(&wait, from, sizeof(wait))) {
        return -EFAULT;
    }
    if (wait.vector >= region->nr_vectors) {
        return -EINVAL;
    }
    vector = &region->vectors[wait.vector];
    result = wait_event_interruptible_hrtimeout(
        vector->waiters, READ_ONCE(*vector->rung) != wait.seen || READ_ONCE(region->node.is_gone),
        ns_to_ktime(min_t(u64, wait.timeout_ns, FGV_MAX_WAIT_NS)));
    if (READ_ONCE(region->node.is_gone)) {
        return -ENODEV;
    }
    return result == -ERESTARTSYS ? -EINTR : result;
}

static long fgv_ring(struct fgv_region *region, unsigned long peer)
{
    long result = 0;

    if (peer > U16_MAX) {
        return -EINVAL;
    }
    if (region->nr_vectors == 0) {
        return -EOPNOTSUPP;
    }
    mutex_lock(&region->node.lock);
    if (region->node.is_gone) {
        result = -ENODEV;
    } else {
        writel((u32)peer << 16, region->registers + FGV_DOORBELL);
    }
    mutex_unlock(&region->node.lock);
    return result;
}

static long fgv_region_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct fgv_region *region = fgv_region_of(file);

    switch (command) {
    case FGV_DEVICE_INFO:
        return fgv_tell(region, (void __user *)argument);
    case FGV_DEVICE_WAIT:
        return fgv_wait(region, (void __user *)argument);
    case FGV_DEVICE_RING:
        return fgv_ring(region, argument);
    default:
        return -ENOTTY;
    }
}

static const struct file_operations fgv_region_operations = {
    .owner = THIS_MODULE,
    .open = fgv_node_open,
    .release = fgv_node_release,
    .mmap = fgv_region_mmap,
    .unlocked_ioctl = fgv_region_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};

static const struct fgv_node_kind fgv_region_kind = {
    .prefix = "fairgv",
    .numbers = &fgv_region_numbers,
    .operations = &fgv_region_operations,
    .free = fgv_region_free,
};

static bool fgv_has_magic(phys_addr_t start)
{
    void __iomem *header = ioremap(start, PAGE_SIZE);
    bool has_magic = header && readq(header) == FGV_MAGIC;

    if (header) {
        iounmap(header);
    }
    return has_magic;
}

/* As many as device and guest have; none is no error. */
static void fgv_take_interrupts(struct fgv_region *region)
{
    int nr = pci_alloc_irq_vectors(region->node.pdev, 1, FGV_DEVICE_MAX_VECTORS, PCI_IRQ_MSIX);

    for (int i = 0; i < nr; i++) {
        struct fgv_vector *vector = &region->vectors[i];

        vector->rung = &region->rung[i];
        init_waitqueue_head(&vector->waiters);
        if (request_irq(pci_irq_vector(region->node.pdev, i), fgv_interrupt, 0, region->node.name, vector)) {
            break;
        }
        region->nr_vectors++;
    }
}

static void fgv_give_interrupts(struct fgv_region *region)
{
    for (unsigned int i = 0; i < region->nr_vectors; i++) {
        free_irq(pci_irq_vector(region->node.pdev, i), &region->vectors[i]);
    }
    pci_free_irq_vectors(region->node.pdev);
}

static struct fgv_region *fgv_region_make(struct pci_dev *pdev)
{
    struct fgv_region *region = kzalloc(sizeof(*region), GFP_KERNEL);

    if (!region) {
        return NULL;
    }
    region->rung = (u32 *)get_zeroed_page(GFP_KERNEL);
    if (!region->rung || fgv_node_init(&region->node, &fgv_region_kind, pdev)) {
        fgv_region_free(&region->node);
        return NULL;
    }
    region->node.bytes = pci_resource_len(pdev, FGV_BAR_MEMORY);
    return region;
}

static int fgv_region_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
    struct fgv_region *region;
    int error = pcim_enable_device(pdev);

    if (error) {
        return error;
    }
    if (pci_resource_len(pdev, FGV_BAR_MEMORY) < PAGE_SIZE ||
        !fgv_has_magic(pci_resource_start(pdev, FGV_BAR_MEMORY))) {
        return -ENODEV;
    }
    region = fgv_region_make(pdev);
    if (!region) {
        return -ENOMEM;
    }
    region->registers = pcim_iomap(pdev, FGV_BAR_REGISTERS, 0);
    if (!region->registers) {
        error = -ENOMEM;
        goto no_registers;
    }
    region->position = readl(region->registers + FGV_POSITION);
    pci_set_master(pdev);
    fgv_take_interrupts(region);
    pci_set_drvdata(pdev, region);
    error = fgv_node_publish(&region->node);
    if (error) {
        goto not_published;
    }
    dev_info(&pdev->dev, "%s: region of %llu MiB, %u interrupts\n", region->node.name, region->node.bytes >> 20,
             region->nr_vectors);
    return 0;

not_published:
    fgv_give_interrupts(region);
no_registers:
    fgv_node_drop(&region->node);
    return error;
}

/* Programs may still have it open and mapped: they get SIGBUS and ENODEV from here on. */
static void fgv_region_remove(struct pci_dev *pdev)
{
    struct fgv_region *region = pci_get_drvdata(pdev);

    fgv_node_withdraw(&region->node);
    for (unsigned int i = 0; i < region->nr_vectors; i++) {
        wake_up_all(&region->vectors[i].waiters);
    }
    fgv_give_interrupts(region);
    fgv_node_drop(&region->node);
}

static const struct pci_device_id fgv_region_ids[] = {
    {PCI_DEVICE(0x1af4, 0x1110)}, /* ivshmem; probe tells ours from others */
    {}};
MODULE_DEVICE_TABLE(pci, fgv_region_ids);

struct pci_driver fgv_region_driver = {
    .name = "fairgv",
    .id_table = fgv_region_ids,
    .probe = fgv_region_probe,
    .remove = fgv_region_remove,
};
