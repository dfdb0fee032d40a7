/*
 * See space.h. Rubbish is refused, not left out: a program that was meant to be in a space and is not would wait for
 * kernels that never end.
 *
 * Wrong when: the names of two spaces of one state file have the same hash of 22 bits. They are one space then.
 */
#include "base/space.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/notice.h"

#define NAME_SETTING     "FAIRGV_SOFTGPU_SPACE"
#define PRIORITY_SETTING "CUDA_MPS_CLIENT_PRIORITY"
#define MAX_NAME_BYTES   63

static struct sgp_space space;

static bool is_name(const char *text)
{
    size_t bytes = strlen(text);

    for (size_t i = 0; i < bytes; i++) {
        if (!isascii(text[i]) || (!isalnum(text[i]) && text[i] != '-' && text[i] != '_')) {
            return false;
        }
    }
    return bytes && bytes <= MAX_NAME_BYTES;
}

/* FNV-1a, folded. */
static uint32_t number_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return (hash >> SGP_SPACE_NUMBER_BITS ^ hash) & ((1u << SGP_SPACE_NUMBER_BITS) - 1);
}

bool sgp_space_open(void)
{
    const char *name = getenv(NAME_SETTING), *priority = getenv(PRIORITY_SETTING);

    if (!name) {
        return true;
    }
    if (!is_name(name)) {
        sgp_notice("softgpu: %s=%s is not a name of 1 to %d letters, digits, - and _; unset it to be in no space",
                   NAME_SETTING, name, MAX_NAME_BYTES);
        return false;
    }
    if (priority && strcmp(priority, "0") && strcmp(priority, "1")) {
        sgp_notice("softgpu: %s=%s is neither 0 (normal) nor 1 (low); unset it for normal", PRIORITY_SETTING, priority);
        return false;
    }
    space =
        (struct sgp_space){.is_there = true, .is_low = priority && !strcmp(priority, "1"), .number = number_of(name)};
    return true;
}

const struct sgp_space *sgp_space(void)
{
    return &space;
}
