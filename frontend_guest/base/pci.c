/* Finding a device on the PCI bus: see pci.h. */
#include "base/pci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define QEMU_VENDOR "0x1af4"

static bool file_equals(const char *directory, const char *name, const char *text)
{
    char path[512];
    char content[32] = "";
    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path)) {
        return false;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    ssize_t length = read(file, content, sizeof(content) - 1);
    close(file);
    return length > 0 && strncmp(content, text, strlen(text)) == 0;
}

/* A device that no driver uses, hot-plugged above all, may not answer to its addresses yet. */
static void device_enable(const char *directory)
{
    char path[512];
    if (snprintf(path, sizeof(path), "%s/enable", directory) >= (int)sizeof(path)) {
        return;
    }
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return;
    }
    ssize_t written = write(file, "1", 1);
    (void)written; /* whether it helped is seen at the file */
    close(file);
}

int fgv_pci_open(const char *device, const char *resource, bool (*accepts)(int file), char *path, size_t path_bytes,
                 bool *denied)
{
    DIR *devices = opendir(PCI_DEVICES);
    if (!devices) {
        return -1;
    }
    int found = -1;
    struct dirent *entry;
    while (found < 0 && (entry = readdir(devices))) {
        char directory[300];
        if (entry->d_name[0] == '.' ||
            snprintf(directory, sizeof(directory), PCI_DEVICES "/%s", entry->d_name) >= (int)sizeof(directory)) {
            continue;
        }
        if (!file_equals(directory, "vendor", QEMU_VENDOR) || !file_equals(directory, "device", device)) {
            continue;
        }
        snprintf(path, path_bytes, "%s/%s", directory, resource);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) {
            if (denied) {
                *denied = *denied || errno == EACCES || errno == EPERM;
            }
            continue;
        }
        if (!accepts(file)) {
            device_enable(directory);
        }
        if (accepts(file)) {
            found = file;
        } else {
            close(file);
        }
    }
    closedir(devices);
    return found;
}
