/* A guest program that uses the device fairgv-memory from sysfs, as root.
 *
 * memory_client STEP...     does the steps in their order, in one mapping of the whole window, and prints a line for
 *                           each:
 *   want BYTES              asks for memory and waits for the end of that
 *   ask BYTES               asks and does not wait
 *   status                  prints the registers
 *   write OFFSET WORD       stores a word into the window
 *   read OFFSET             prints one
 *   interrupt OFFSET WORD   has the device's interrupts store a word into the window
 *   await OFFSET WORD       waits for one
 *   fill                    writes its own number into each word of what is mapped
 *   check                   reads these again
 *   nonsense                writes all kinds of things to all registers, and beside them
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEVICES         "/sys/bus/pci/devices"
#define REGISTERS_BYTES 4096u

enum {
    MAGIC = 0x00,
    WINDOW = 0x08,
    MAPPED = 0x10,
    WANTED = 0x18,
    STATE = 0x20,
    ERROR = 0x24,
    CHANGES = 0x28,
    PIECES = 0x2c
};

struct device {
    volatile uint8_t *registers;
    volatile uint32_t *window;
    uint64_t window_address; /* as the processor has it */
    int configuration;
};

static const struct timespec NAP = {.tv_nsec = 1000000};

static uint32_t load32(const struct device *device, unsigned offset)
{
    return *(volatile uint32_t *)(device->registers + offset);
}

static uint64_t load64(const struct device *device, unsigned offset)
{
    return *(volatile uint64_t *)(device->registers + offset);
}

static bool is_ours(const char *name)
{
    char path[512], text[16] = "";
    snprintf(path, sizeof path, DEVICES "/%s/device", name);
    FILE *file = fopen(path, "r");
    if (!file) {
        return false;
    }
    bool was_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return was_read && strcmp(text, "0x10f0\n") == 0;
}

static uint64_t resource_address(const char *name, int number)
{
    char path[512], line[128] = "";
    snprintf(path, sizeof path, DEVICES "/%s/resource", name);
    FILE *file = fopen(path, "r");
    while (file && number-- >= 0 && fgets(line, sizeof line, file))
        ;
    if (file) {
        fclose(file);
    }
    return strtoull(line, NULL, 16);
}

static void *map_resource(const char *name, int number, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, DEVICES "/%s/resource%d", name, number);
    int file = open(path, O_RDWR);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) {
        perror(path);
        exit(3);
    }
    close(file);
    return mapped;
}

static bool find_device(char name[256])
{
    bool is_found = false;
    DIR *folder = opendir(DEVICES);
    for (struct dirent *entry; !is_found && folder && (entry = readdir(folder));) {
        if ((is_found = is_ours(entry->d_name))) {
            snprintf(name, 256, "%s", entry->d_name);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return is_found;
}

static struct device open_device(void)
{
    char name[256], path[512];
    struct device device;
    if (!find_device(name)) {
        puts("no device");
        exit(4);
    }
    snprintf(path, sizeof path, DEVICES "/%s/enable", name);
    int enable = open(path, O_WRONLY);
    if (enable < 0 || write(enable, "1", 1) != 1) {
        perror(path);
    }
    close(enable);
    device.registers = map_resource(name, 0, REGISTERS_BYTES);
    device.window = map_resource(name, 2, load64(&device, WINDOW));
    device.window_address = resource_address(name, 2);
    snprintf(path, sizeof path, DEVICES "/%s/config", name);
    device.configuration = open(path, O_RDWR);
    return device;
}

static void print_status(const struct device *device)
{
    printf("magic %" PRIx64 " window %" PRIu64 " mapped %" PRIu64 " wanted %" PRIu64
           " state %u error %u changes %u pieces %u\n",
           load64(device, MAGIC), load64(device, WINDOW), load64(device, MAPPED), load64(device, WANTED),
           load32(device, STATE), load32(device, ERROR), load32(device, CHANGES), load32(device, PIECES));
}

static void ask(const struct device *device, uint64_t bytes)
{
    *(volatile uint64_t *)(device->registers + WANTED) = bytes;
}

static void want(const struct device *device, uint64_t bytes)
{
    uint32_t before = load32(device, CHANGES);
    ask(device, bytes);
    while (load32(device, CHANGES) == before) {
        nanosleep(&NAP, NULL);
    }
    printf("error %u mapped %" PRIu64 "\n", load32(device, ERROR), load64(device, MAPPED));
}

static uint16_t configured(const struct device *device, unsigned offset)
{
    uint16_t value = 0;
    if (pread(device->configuration, &value, 2, (off_t)offset) != 2) {
        exit(3);
    }
    return value;
}

static void configure(const struct device *device, unsigned offset, uint64_t value, size_t bytes)
{
    if (pwrite(device->configuration, &value, bytes, (off_t)offset) != (ssize_t)bytes) {
        exit(3);
    }
}

/* Registers of the PCI specification: the capability MSI with an address of 64 bits, and the command that lets a device
 * write memory. */
static void interrupt(const struct device *device, uint64_t offset, uint16_t word)
{
    const unsigned command = 0x04, bus_master = 4, first = 0x34, msi = 0x05, enable = 1;
    unsigned place = configured(device, first) & 0xff;
    while (place != 0 && (configured(device, place) & 0xff) != msi) {
        place = configured(device, place) >> 8;
    }
    if (place == 0) {
        exit(3);
    }
    configure(device, command, configured(device, command) | bus_master, 2);
    configure(device, place + 4, device->window_address + offset, 8);
    configure(device, place + 12, word, 2);
    configure(device, place + 2, configured(device, place + 2) | enable, 2);
}

static void fill(const struct device *device)
{
    size_t nr_words = load64(device, MAPPED) / 4;
    for (size_t i = 0; i < nr_words; i++) {
        device->window[i] = (uint32_t)i;
    }
    printf("%zu words\n", nr_words);
}

static void check(const struct device *device)
{
    size_t nr_words = load64(device, MAPPED) / 4, nr_wrong = 0;
    for (size_t i = 0; i < nr_words; i++) {
        nr_wrong += device->window[i] != (uint32_t)i;
    }
    printf("%zu words, %zu wrong\n", nr_words, nr_wrong);
}

/* None of these values, nor two halves of different ones, is a size that the device would ask its peer for. */
static void nonsense(const struct device *device)
{
    const uint64_t values[] = {UINT64_MAX, UINT64_MAX - 4095, 1, UINT64_C(1) << 63, 0x80000001, 0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (unsigned offset = 0; offset < REGISTERS_BYTES; offset += 4) {
            *(volatile uint8_t *)(device->registers + offset + 1) = (uint8_t)values[i];
            *(volatile uint16_t *)(device->registers + offset + 2) = (uint16_t)values[i];
            *(volatile uint32_t *)(device->registers + offset) = (uint32_t)values[i];
            if (offset % 8 == 0) {
                *(volatile uint64_t *)(device->registers + offset) = values[i];
            }
            (void)*(device->registers + offset + 3);
            (void)load32(device, offset);
        }
    }
    size_t mapped = load64(device, MAPPED), window = load64(device, WINDOW);
    for (size_t offset = mapped; offset < window; offset += window / 64) {
        device->window[offset / 4] = 0xdeadbeef;
        if (device->window[offset / 4] == 0xdeadbeef) {
            printf("memory at %zu, where none is\n", offset);
        }
    }
    puts("done");
}

static uint64_t number(char **step)
{
    if (!*step) {
        exit(2);
    }
    return strtoull(*step, NULL, 0);
}

/* Returns how many arguments the step has. */
static int take_step(const struct device *device, char **step)
{
    if (strcmp(step[0], "want") == 0) {
        return want(device, number(step + 1)), 1;
    }
    if (strcmp(step[0], "ask") == 0) {
        return ask(device, number(step + 1)), 1;
    }
    if (strcmp(step[0], "write") == 0) {
        return device->window[number(step + 1) / 4] = (uint32_t)number(step + 2), 2;
    }
    if (strcmp(step[0], "read") == 0) {
        return printf("read 0x%x\n", device->window[number(step + 1) / 4]), 1;
    }
    if (strcmp(step[0], "interrupt") == 0) {
        return interrupt(device, number(step + 1), (uint16_t)number(step + 2)), 2;
    }
    if (strcmp(step[0], "await") == 0) {
        while (device->window[number(step + 1) / 4] != (uint32_t)number(step + 2)) {
            nanosleep(&NAP, NULL);
        }
        return 2;
    }
    if (strcmp(step[0], "status") == 0) {
        return print_status(device), 0;
    }
    if (strcmp(step[0], "fill") == 0) {
        return fill(device), 0;
    }
    if (strcmp(step[0], "check") == 0) {
        return check(device), 0;
    }
    if (strcmp(step[0], "nonsense") == 0) {
        return nonsense(device), 0;
    }
    exit(2);
}

int main(int nr_arguments, char **arguments)
{
    struct device device = open_device();
    for (int i = 1; i < nr_arguments; i++) {
        i += take_step(&device, arguments + i);
        fflush(stdout);
    }
    return 0;
}
