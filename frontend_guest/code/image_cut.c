/* The part of a fat binary that is sent: see image_cut.h. */
#include "code/image_cut.h"

#include <string.h>

/* Whether an entry begins at *offset; *next is where the one after it does. */
static bool entry_at(const struct fgv_image_cut *cut, uint64_t offset, uint64_t *next, bool *is_chosen)
{
    struct fgv_fatbin_entry entry;
    if (!fgv_fatbin_entry_at(cut->entries, cut->entries_bytes, offset, &entry, next)) {
        return false;
    }
    *is_chosen = fgv_fatbin_is_chosen(&cut->choice, &entry);
    return true;
}

uint64_t fgv_image_cut_next(const struct fgv_image_cut *cut, uint64_t *offset, const uint8_t **run)
{
    uint64_t begin = *offset, next;
    bool is_chosen;
    while (entry_at(cut, begin, &next, &is_chosen) && !is_chosen) {
        begin = next;
    }
    uint64_t end = begin;
    while (entry_at(cut, end, &next, &is_chosen) && is_chosen) {
        end = next;
    }
    *offset = end;
    *run = cut->entries + begin;
    return end - begin;
}

bool fgv_image_cut(struct fgv_image_cut *cut, const uint8_t *container, const uint32_t *capabilities,
                   uint32_t nr_capabilities)
{
    *cut = (struct fgv_image_cut){.choice.nr_devices = nr_capabilities};
    memcpy(&cut->header, container, sizeof(cut->header));
    if (cut->header.header_bytes != sizeof(cut->header) || nr_capabilities > FGV_FATBIN_MAX_DEVICES) {
        return false;
    }
    cut->entries = container + sizeof(cut->header);
    cut->entries_bytes = cut->header.entries_bytes;
    for (uint32_t i = 0; i < nr_capabilities; i++) {
        cut->choice.devices[i].capability = capabilities[i];
    }
    if (!fgv_fatbin_choose(&cut->choice, cut->entries, cut->entries_bytes)) {
        return false;
    }
    const uint8_t *run;
    cut->header.entries_bytes = 0;
    for (uint64_t offset = 0, nr_bytes; (nr_bytes = fgv_image_cut_next(cut, &offset, &run)) > 0;) {
        cut->header.entries_bytes += nr_bytes;
    }
    return true;
}
