/*
 * Which entries of a fat binary a device can use; cuda_api/fatbin.py describes the layout.
 *
 * NVIDIA's rules (CUDA programming guide, "Application Compatibility"): machine code runs on devices of its own major
 * version and no lower a minor one, PTX on devices of its capability and all later ones. Code for one architecture
 * (sm_90a) runs on that alone, code for a family (sm_100f) on it and later ones of its major version. Where no machine
 * code fits, the driver compiles the newest PTX that does.
 *
 * An entry is useless when those rules say so, and no entry is that has an unknown kind, version or flag. Where a
 * device would be left with nothing, or the lengths do not add up, there is no choice: the image is for the driver to
 * judge as it is.
 *
 * Older PTX than the newest is useless if the same compiler wrote it; of another version of the language it is not, for
 * a driver may know only the older one.
 *
 * Whoever walks over a container that another may write must walk over a copy.
 */
#ifndef CUDA_API_FATBIN_CHOICE_H
#define CUDA_API_FATBIN_CHOICE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FGV_FATBIN_ENTRY_VERSION 0x101u
#define FGV_FATBIN_MAX_DEVICES   16u

enum fgv_fatbin_kind {
    FGV_FATBIN_PTX = 1,
    FGV_FATBIN_ELF = 2,
};

enum fgv_fatbin_flags {
    FGV_FATBIN_64_BITS = 0x1,
    FGV_FATBIN_DEBUG = 0x2,
    FGV_FATBIN_LINUX = 0x10,
    FGV_FATBIN_LZ4 = 0x2000,
    FGV_FATBIN_ZSTD = 0x8000,
    FGV_FATBIN_ARCHITECTURE_SPECIFIC = 0x100000,
    FGV_FATBIN_FAMILY_SPECIFIC = 0x200000,
    FGV_FATBIN_SINCE_100 = 0x1000000, /* nvcc sets it in machine code for 10.0 and later */
};

/* The least header of an entry; its options and names may follow, before the content. */
struct fgv_fatbin_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t stored_bytes; /* of the content, with padding */
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint32_t language_version; /* of PTX: 0x80003 for 8.3 */
    uint32_t architecture;     /* 90 for sm_90 */
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t unpacked_bytes;
};

_Static_assert(sizeof(struct fgv_fatbin_entry) == 64, "as nvcc lays it out");

/* A device, and what is there for it. */
struct fgv_fatbin_device {
    uint32_t capability; /* 90 for 9.0 */
    bool has_code;
    uint32_t newest_ptx; /* architecture; 0: none that fits */
    uint32_t newest_version;
};

struct fgv_fatbin_choice {
    uint32_t nr_devices;
    struct fgv_fatbin_device devices[FGV_FATBIN_MAX_DEVICES];
};

/* The entry at `offset` of the entries of a container, and where the next one begins. False: it does not fit in. */
static inline bool fgv_fatbin_entry_at(const uint8_t *entries, uint64_t entries_bytes, uint64_t offset,
                                       struct fgv_fatbin_entry *entry, uint64_t *next)
{
    uint64_t left = entries_bytes - offset;
    if (left < sizeof(*entry)) {
        return false;
    }
    memcpy(entry, entries + offset, sizeof(*entry));
    if (entry->header_bytes < sizeof(*entry) || entry->header_bytes > left ||
        entry->stored_bytes > left - entry->header_bytes) {
        return false;
    }
    *next = offset + entry->header_bytes + entry->stored_bytes;
    return true;
}

static inline bool fgv_fatbin_is_understood(const struct fgv_fatbin_entry *entry)
{
    const uint64_t known = FGV_FATBIN_64_BITS | FGV_FATBIN_DEBUG | FGV_FATBIN_LINUX | FGV_FATBIN_LZ4 | FGV_FATBIN_ZSTD |
                           FGV_FATBIN_ARCHITECTURE_SPECIFIC | FGV_FATBIN_FAMILY_SPECIFIC | FGV_FATBIN_SINCE_100;
    return (entry->kind == FGV_FATBIN_PTX || entry->kind == FGV_FATBIN_ELF) &&
           entry->version == FGV_FATBIN_ENTRY_VERSION && (entry->flags & ~known) == 0;
}

/* Whether an entry that is understood runs on a device of this capability. */
static inline bool fgv_fatbin_runs_on(const struct fgv_fatbin_entry *entry, uint32_t capability)
{
    const bool is_same_major = entry->architecture / 10 == capability / 10;
    if (entry->flags & FGV_FATBIN_ARCHITECTURE_SPECIFIC) {
        return entry->architecture == capability;
    }
    if (entry->kind == FGV_FATBIN_ELF || (entry->flags & FGV_FATBIN_FAMILY_SPECIFIC)) {
        return is_same_major && entry->architecture <= capability;
    }
    return entry->architecture <= capability;
}

static inline void fgv_fatbin_device_note(struct fgv_fatbin_device *device, const struct fgv_fatbin_entry *entry)
{
    if (!fgv_fatbin_runs_on(entry, device->capability)) {
        return;
    }
    device->has_code = true;
    if (entry->kind == FGV_FATBIN_PTX && entry->architecture > device->newest_ptx) {
        device->newest_ptx = entry->architecture;
        device->newest_version = entry->language_version;
    }
}

/* Looks at the entries for the devices whose capabilities stand in `choice`. False: there is no choice. */
static inline bool fgv_fatbin_choose(struct fgv_fatbin_choice *choice, const uint8_t *entries, uint64_t entries_bytes)
{
    bool has_code = choice->nr_devices > 0;
    struct fgv_fatbin_entry entry;
    for (uint64_t offset = 0; offset < entries_bytes;) {
        if (!fgv_fatbin_entry_at(entries, entries_bytes, offset, &entry, &offset)) {
            return false;
        }
        for (uint32_t i = 0; i < choice->nr_devices && fgv_fatbin_is_understood(&entry); i++) {
            fgv_fatbin_device_note(&choice->devices[i], &entry);
        }
    }
    for (uint32_t i = 0; i < choice->nr_devices; i++) {
        has_code = has_code && choice->devices[i].has_code;
    }
    return has_code;
}

static inline bool fgv_fatbin_device_uses(const struct fgv_fatbin_device *device, const struct fgv_fatbin_entry *entry)
{
    return fgv_fatbin_runs_on(entry, device->capability) &&
           (entry->kind != FGV_FATBIN_PTX || entry->architecture == device->newest_ptx ||
            entry->language_version != device->newest_version);
}

/* Whether an entry may be of use to a device. */
static inline bool fgv_fatbin_is_chosen(const struct fgv_fatbin_choice *choice, const struct fgv_fatbin_entry *entry)
{
    bool is_used = !fgv_fatbin_is_understood(entry);
    for (uint32_t i = 0; i < choice->nr_devices; i++) {
        is_used = is_used || fgv_fatbin_device_uses(&choice->devices[i], entry);
    }
    return is_used;
}

#endif
