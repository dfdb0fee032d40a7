// SPDX-License-Identifier: GPL-2.0
/*
 * The device fairgv-memory of FairGV's patches to QEMU becomes /dev/fairgv-memoryN: memory behind the region, which the
 * host gives when it is asked. The device is specified in docs/specs/fairgv-memory.rst of these patches.
 *
 * Programs have its memory, not its registers. They ask through the file, one at a time, for a size that was checked
 * here, and map what is memory already; the rest of the window, where nothing answers, is out of reach. As with the
 * region, whoever may open the file reaches all of the memory, and may ask for all that the host gives this machine.
 *
 * Wrong when: root writes to the registers, through sysfs, at the same time. Who asked then may be told of the other
 * one's request; nobody gets more than the device has mapped.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "device.h"
#include "drivers.h"
#include "node.h"

#define FGV_MEMORY_MAGIC 0x000000014d564746ull /* and version 1 */
#define FGV_AT_MAGIC     0x00
#define FGV_AT_WINDOW    0x08
#define FGV_AT_MAPPED    0x10
#define FGV_AT_WANTED    0x18
#define FGV_AT_STATE     0x20
#define FGV_AT_ERROR     0x24
#define FGV_AT_END       0x30
#define FGV_STATE_ASKING 1
#define FGV_ANSWER_MOST  (60 * HZ) /* the host clears the memory first, which takes a second for some GB */
#define FGV_LOOK_RARELY  HZ        /* with an interrupt, which says when to */
#define FGV_LOOK_OFTEN   msecs_to_jiffies(2)

struct fgv_memory {
    struct fgv_node node; /* its bytes are what the device had mapped when it was looked at last */
    void __iomem *registers;
    u64 window_bytes;
    struct mutex asking; /* one request at a time; taken before the node's lock */
    bool has_interrupt;
    u32 nr_interrupts;
    wait_queue_head_t waiters; /* for the end of a request */
};

static DEFINE_IDA(fgv_memory_numbers);

static struct fgv_memory *fgv_memory_of(const struct file *file)
{
    struct fgv_node *node = file->private_data;

    return container_of(node, struct fgv_memory, node);
}

static void fgv_memory_free(struct fgv_node *node)
{
    kfree(container_of(node, struct fgv_memory, node));
}

static irqreturn_t fgv_memory_interrupt(int irq, void *context)
{
    struct fgv_memory *memory = context;

    WRITE_ONCE(memory->nr_interrupts, memory->nr_interrupts + 1);
    wake_up_all(&memory->waiters);
    return IRQ_HANDLED;
}

/* With the node's lock. A device that was reset has less than before, and one that was pulled out says nonsense. */
static void fgv_memory_look(struct fgv_memory *memory)
{
    u64 bytes = readq(memory->registers + FGV_AT_MAPPED);

    if (bytes > memory->window_bytes || bytes % PAGE_SIZE) {
        bytes = 0;
    }
    if (bytes < memory->node.bytes) {
        fgv_node_unmap(&memory->node);
    }
    memory->node.bytes = bytes;
}

/* Fills `mapped` with what is memory now. */
static int fgv_memory_refresh(struct fgv_memory *memory, u64 *mapped)
{
    int result = 0;

    mutex_lock(&memory->node.lock);
    if (memory->node.is_gone) {
        result = -ENODEV;
    } else {
        fgv_memory_look(memory);
    }
    *mapped = memory->node.bytes;
    mutex_unlock(&memory->node.lock);
    return result;
}

static int fgv_memory_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct fgv_memory *memory = fgv_memory_of(file);
    u64 mapped;
    int error = fgv_memory_refresh(memory, &mapped);

    return error ? error : fgv_node_map(&memory->node, vma);
}

static long fgv_memory_tell(struct fgv_memory *memory, struct fgv_memory_info __user *to)
{
    struct fgv_memory_info info = {
        .abi = FGV_MEMORY_ABI,
        .window_bytes = memory->window_bytes,
    };
    int error = fgv_memory_refresh(memory, &info.mapped_bytes);

    if (error) {
        return error;
    }
    return copy_to_user(to, &info, sizeof(info)) ? -EFAULT : 0;
}

/* Of a request that has ended, without success. */
static int fgv_memory_error(u32 error)
{
    switch (error) {
    case 3: /* refused */
    case 4: /* as many pieces as there can be */
        return -ENOMEM;
    case 2: /* another one's was going on */
        return -EBUSY;
    case 5: /* no peer is connected */
        return -ENOTCONN;
    default:
        return -EIO;
    }
}

/* 1: a request is going on. `error` is that of the last one. */
static int fgv_memory_is_asking(struct fgv_memory *memory, u32 *error)
{
    int result = -ENODEV;

    mutex_lock(&memory->node.lock);
    if (!memory->node.is_gone) {
        result = readl(memory->registers + FGV_AT_STATE) == FGV_STATE_ASKING;
        *error = readl(memory->registers + FGV_AT_ERROR);
    }
    mutex_unlock(&memory->node.lock);
    return result;
}

static int fgv_memory_await_idle(struct fgv_memory *memory, u32 *error)
{
    const unsigned long end = jiffies + FGV_ANSWER_MOST;
    const unsigned long nap = memory->has_interrupt ? FGV_LOOK_RARELY : FGV_LOOK_OFTEN;

    for (;;) {
        u32 seen = READ_ONCE(memory->nr_interrupts);
        int result = fgv_memory_is_asking(memory, error);

        if (result <= 0) {
            return result;
        }
        if (time_after(jiffies, end)) {
            return -ETIME;
        }
        if (wait_event_interruptible_timeout(
                memory->waiters, READ_ONCE(memory->nr_interrupts) != seen || READ_ONCE(memory->node.is_gone), nap) <
            0) {
            return -EINTR;
        }
    }
}

static int fgv_memory_ask(struct fgv_memory *memory, u64 bytes)
{
    int result = 0;

    mutex_lock(&memory->node.lock);
    if (memory->node.is_gone) {
        result = -ENODEV;
    } else {
        writeq(bytes, memory->registers + FGV_AT_WANTED);
    }
    mutex_unlock(&memory->node.lock);
    return result;
}

/* With the right to ask. The state is read behind the request, so that it is asking or the request has ended. */
static int fgv_memory_request(struct fgv_memory *memory, u64 bytes)
{
    u64 mapped;
    u32 error;
    int result = fgv_memory_await_idle(memory, &error); /* who asked before may have been interrupted */

    if (!result) {
        result = fgv_memory_refresh(memory, &mapped);
    }
    if (result || mapped >= bytes) {
        return result;
    }
    result = fgv_memory_ask(memory, bytes);
    if (!result) {
        result = fgv_memory_await_idle(memory, &error);
    }
    if (!result) {
        result = fgv_memory_refresh(memory, &mapped);
    }
    return result || mapped >= bytes ? result : fgv_memory_error(error);
}

static long fgv_memory_grow(struct fgv_memory *memory, const __u64 __user *from)
{
    u64 bytes;
    long result;

    if (copy_from_user(&bytes, from, sizeof(bytes))) {
        return -EFAULT;
    }
    if (bytes % PAGE_SIZE || bytes > memory->window_bytes) {
        return -EINVAL;
    }
    if (mutex_lock_interruptible(&memory->asking)) {
        return -EINTR;
    }
    result = fgv_memory_request(memory, bytes);
    mutex_unlock(&memory->asking);
    return result;
}

static long fgv_memory_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct fgv_memory *memory = fgv_memory_of(file);

    switch (command) {
    case FGV_MEMORY_INFO:
        return fgv_memory_tell(memory, (void __user *)argument);
    case FGV_MEMORY_GROW:
        return fgv_memory_grow(memory, (void __user *)argument);
    default:
        return -ENOTTY;
    }
}

static const struct file_operations fgv_memory_operations = {
    .owner = THIS_MODULE,
    .open = fgv_node_open,
    .release = fgv_node_release,
    .mmap = fgv_memory_mmap,
    .unlocked_ioctl = fgv_memory_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};

static const struct fgv_node_kind fgv_memory_kind = {
    .prefix = "fairgv-memory",
    .numbers = &fgv_memory_numbers,
    .operations = &fgv_memory_operations,
    .free = fgv_memory_free,
};

/* Whether it is the device that it seems to be, which its number, one of those for experiments, does not say. */
static bool fgv_memory_is_ours(struct pci_dev *pdev, void __iomem *registers)
{
    return readq(registers + FGV_AT_MAGIC) == FGV_MEMORY_MAGIC &&
           readq(registers + FGV_AT_WINDOW) == pci_resource_len(pdev, FGV_BAR_MEMORY);
}

static struct fgv_memory *fgv_memory_make(struct pci_dev *pdev, void __iomem *registers)
{
    struct fgv_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL);

    if (!memory || fgv_node_init(&memory->node, &fgv_memory_kind, pdev)) {
        kfree(memory);
        return NULL;
    }
    memory->registers = registers;
    memory->window_bytes = pci_resource_len(pdev, FGV_BAR_MEMORY);
    mutex_init(&memory->asking);
    init_waitqueue_head(&memory->waiters);
    return memory;
}

/* None is no error: the state is then looked at often. */
static void fgv_memory_take_interrupt(struct fgv_memory *memory)
{
    struct pci_dev *pdev = memory->node.pdev;

    memory->has_interrupt =
        pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI) == 1 &&
        request_irq(pci_irq_vector(pdev, 0), fgv_memory_interrupt, 0, memory->node.name, memory) == 0;
}

static void fgv_memory_give_interrupt(struct fgv_memory *memory)
{
    if (memory->has_interrupt) {
        free_irq(pci_irq_vector(memory->node.pdev, 0), memory);
    }
    pci_free_irq_vectors(memory->node.pdev);
}

static int fgv_memory_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
    void __iomem *registers;
    struct fgv_memory *memory;
    int error = pcim_enable_device(pdev);

    if (error) {
        return error;
    }
    if (pci_resource_len(pdev, FGV_BAR_REGISTERS) < FGV_AT_END) {
        return -ENODEV;
    }
    registers = pcim_iomap(pdev, FGV_BAR_REGISTERS, 0);
    if (!registers) {
        return -ENOMEM;
    }
    if (!fgv_memory_is_ours(pdev, registers)) {
        return -ENODEV;
    }
    memory = fgv_memory_make(pdev, registers);
    if (!memory) {
        return -ENOMEM;
    }
    pci_set_master(pdev);
    fgv_memory_take_interrupt(memory);
    pci_set_drvdata(pdev, memory);
    error = fgv_node_publish(&memory->node);
    if (error) {
        fgv_memory_give_interrupt(memory);
        fgv_node_drop(&memory->node);
        return error;
    }
    dev_info(&pdev->dev, "%s: window of %llu MiB\n", memory->node.name, memory->window_bytes >> 20);
    return 0;
}

/* Programs may still have it open and mapped: they get SIGBUS and ENODEV from here on. */
static void fgv_memory_remove(struct pci_dev *pdev)
{
    struct fgv_memory *memory = pci_get_drvdata(pdev);

    fgv_node_withdraw(&memory->node);
    wake_up_all(&memory->waiters);
    fgv_memory_give_interrupt(memory);
    fgv_node_drop(&memory->node);
}

/* The device has given everything back. */
static void fgv_memory_reset_done(struct pci_dev *pdev)
{
    struct fgv_memory *memory = pci_get_drvdata(pdev);
    u64 mapped;

    fgv_memory_refresh(memory, &mapped);
}

static const struct pci_error_handlers fgv_memory_handlers = {
    .reset_done = fgv_memory_reset_done,
};

static const struct pci_device_id fgv_memory_ids[] = {{PCI_DEVICE(0x1af4, 0x10f0)}, {}};
MODULE_DEVICE_TABLE(pci, fgv_memory_ids);

struct pci_driver fgv_memory_driver = {
    .name = "fairgv-memory",
    .id_table = fgv_memory_ids,
    .probe = fgv_memory_probe,
    .remove = fgv_memory_remove,
    .err_handler = &fgv_memory_handlers,
};
