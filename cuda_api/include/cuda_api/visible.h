/*
 * CUDA_VISIBLE_DEVICES, as the driver reads it: a list of numbers and of the beginnings of UUIDs ("GPU-8932f937"), each
 * of which must be that of one device alone. The list ends before the first entry that is none of the devices; one that
 * names a device again makes cuInit fail.
 */
#ifndef CUDA_API_VISIBLE_H
#define CUDA_API_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cuda_api/types.h"

static inline int fgv_hex_digit(char letter)
{
    return letter >= '0' && letter <= '9'   ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
           : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                                            : -1;
}

/* Whether `bytes` letters, hexadecimal and dashes, are how the UUID begins. */
static inline bool fgv_uuid_begins(const char *text, size_t bytes, const uint8_t uuid[16])
{
    unsigned nr_digits = 0;
    for (size_t i = 0; i < bytes; i++) {
        const int digit = fgv_hex_digit(text[i]);
        if (text[i] == '-') {
            continue;
        }
        if (digit < 0 || nr_digits == 32 || digit != (uuid[nr_digits / 2] >> (nr_digits % 2 == 0 ? 4 : 0) & 15)) {
            return false;
        }
        nr_digits++;
    }
    return nr_digits > 0;
}

/* The device that an entry names; -1: none, or more than one. */
static inline int fgv_visible_device(const char *entry, size_t bytes, const uint8_t (*uuids)[16], uint32_t nr_devices)
{
    int found = -1;
    if (bytes > 4 && strncmp(entry, "GPU-", 4) == 0) {
        for (uint32_t i = 0; i < nr_devices; i++) {
            if (!fgv_uuid_begins(entry + 4, bytes - 4, uuids[i])) {
                continue;
            }
            if (found >= 0) {
                return -1;
            }
            found = (int)i;
        }
        return found;
    }
    uint32_t index = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (entry[i] < '0' || entry[i] > '9' || index > nr_devices) {
            return -1;
        }
        index = index * 10 + (uint32_t)(entry[i] - '0');
    }
    return bytes > 0 && index < nr_devices ? (int)index : -1;
}

/* Which devices the list names, into `chosen`, which has room for all. CUDA_ERROR_INVALID_DEVICE: one of them twice. */
static inline CUresult fgv_visible_devices(const char *list, const uint8_t (*uuids)[16], uint32_t nr_devices,
                                           uint32_t *chosen, uint32_t *nr_chosen)
{
    *nr_chosen = 0;
    for (list += strspn(list, " "); *list != '\0';) {
        const size_t bytes = strcspn(list, " ,");
        const int device = fgv_visible_device(list, bytes, uuids, nr_devices);
        if (device < 0) {
            return CUDA_SUCCESS;
        }
        for (uint32_t i = 0; i < *nr_chosen; i++) {
            if (chosen[i] == (uint32_t)device) {
                return CUDA_ERROR_INVALID_DEVICE;
            }
        }
        chosen[(*nr_chosen)++] = (uint32_t)device;
        list += bytes;
        list += strspn(list, " ,");
    }
    return CUDA_SUCCESS;
}

#endif
