/* A guest program without CUDA: finds the shared memory device, waiting for it if need be, and passes one word through
 * it.
 *
 * ivshmem_word write WORD   stores WORD (in hex) as the region's first word.
 * ivshmem_word await WORD   waits until the host has stored WORD as the second one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEVICES "/sys/bus/pci/devices"

static unsigned long read_number(const char *device, const char *name)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof path, DEVICES "/%s/%s", device, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        return 0;
    }
    if (!fgets(text, sizeof text, file)) {
        text[0] = '\0';
    }
    fclose(file);
    return strtoul(text, NULL, 0);
}

static int open_region(void)
{
    char path[512], device[256];
    DIR *folder = opendir(DEVICES);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (read_number(entry->d_name, "vendor") != 0x1af4 || read_number(entry->d_name, "device") != 0x1110) {
            continue;
        }
        snprintf(device, sizeof device, "%s", entry->d_name);
        closedir(folder);
        snprintf(path, sizeof path, DEVICES "/%s/enable", device);
        int enable = open(path, O_WRONLY);
        bool is_enabled = enable >= 0 && write(enable, "1", 1) == 1;
        if (enable >= 0) {
            close(enable);
        }
        snprintf(path, sizeof path, DEVICES "/%s/resource2", device);
        return is_enabled ? open(path, O_RDWR) : -1; /* one that is just plugged has no addresses yet */
    }
    if (folder) {
        closedir(folder);
    }
    return -1;
}

int main(int nr_arguments, char **arguments)
{
    if (nr_arguments != 3) {
        return 2;
    }
    const struct timespec pause = {.tv_nsec = 2000000};
    int region = open_region();
    while (region < 0) {
        nanosleep(&pause, NULL);
        region = open_region();
    }
    struct stat status;
    volatile uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region, 0);
    if (words == MAP_FAILED || fstat(region, &status) != 0) {
        perror("the region");
        return 3;
    }
    uint32_t word = (uint32_t)strtoul(arguments[2], NULL, 16);
    if (strcmp(arguments[1], "write") == 0) {
        words[0] = word;
    } else {
        while (words[1] != word) {
            nanosleep(&pause, NULL);
        }
    }
    printf("region of %lld bytes\n", (long long)status.st_size);
    return 0;
}
