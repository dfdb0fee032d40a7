/* The searches of mummergpu.cu as plain loops, query for query. */
#include <string.h>

#include "mummergpu.h"

static int common_length(const char *one, const char *other, int most)
{
    int length = 0;
    while (length < most && one[length] == other[length]) {
        length++;
    }
    return length;
}

/* The first suffix that is not below the pattern. */
static int first_above(const struct mummer *mummer, const char *pattern, int length)
{
    int low = 0, high = mummer->nr_bases;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strncmp(mummer->bases + mummer->suffixes[middle], pattern, length) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int length_at(const struct mummer *mummer, int suffix, const char *pattern, int length)
{
    if (suffix < 0 || suffix >= mummer->nr_bases) {
        return -1;
    }
    return common_length(mummer->bases + mummer->suffixes[suffix], pattern, length);
}

static uint32_t match_of(const struct mummer *mummer, const char *pattern, int length)
{
    int above = first_above(mummer, pattern, length);
    int with_above = length_at(mummer, above, pattern, length),
        with_below = length_at(mummer, above - 1, pattern, length);
    return with_above >= with_below ? MUMMER_MATCH(with_above, above) : MUMMER_MATCH(with_below, above - 1);
}

static struct mummer_place longest_of(const struct mummer *mummer, int query)
{
    struct mummer_place place = {0, 0, 0};
    int suffix = 0;
    for (int offset = 0; offset < MUMMER_OFFSETS; offset++) {
        uint32_t match = mummer->matches[(long)offset * mummer->nr_queries + query];
        if (MUMMER_LENGTH(match) > place.length) {
            place = (struct mummer_place){MUMMER_LENGTH(match), offset, 0};
            suffix = MUMMER_SUFFIX(match);
        }
    }
    const char *pattern = mummer->queries + (long)query * MUMMER_QUERY + place.offset;
    place.position = mummer->suffixes[suffix];
    for (int at = suffix - MUMMER_NEIGHBOURS; at <= suffix + MUMMER_NEIGHBOURS; at++) {
        if (length_at(mummer, at, pattern, place.length) == place.length && mummer->suffixes[at] < place.position) {
            place.position = mummer->suffixes[at];
        }
    }
    return place;
}

void mummer_loops(const struct mummer *mummer)
{
#pragma omp parallel for schedule(dynamic, 64)
    for (int query = 0; query < mummer->nr_queries; query++) {
        for (int offset = 0; offset < MUMMER_OFFSETS; offset++) {
            const char *pattern = mummer->queries + (long)query * MUMMER_QUERY + offset;
            mummer->matches[(long)offset * mummer->nr_queries + query] =
                match_of(mummer, pattern, MUMMER_QUERY - offset);
        }
        mummer->longest[query] = longest_of(mummer, query);
    }
}
