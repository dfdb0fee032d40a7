/* The guest's cutting of fat binaries as a function of bytes, for tests. */
#include <string.h>

#include "code/image_cut.h"

/* What is sent of a container, into `sent`; its length. 0: the container goes whole. */
uint64_t cut(const uint8_t *container, const uint32_t *capabilities, uint32_t nr_capabilities, uint8_t *sent)
{
    struct fgv_image_cut cut;
    const uint8_t *run;
    uint64_t end = sizeof(cut.header);
    if (!fgv_image_cut(&cut, container, capabilities, nr_capabilities)) {
        return 0;
    }
    memcpy(sent, &cut.header, sizeof(cut.header));
    for (uint64_t offset = 0, nr_bytes; (nr_bytes = fgv_image_cut_next(&cut, &offset, &run)) > 0; end += nr_bytes) {
        memcpy(sent + end, run, nr_bytes);
    }
    return end;
}
