/* Grep of the GPUfs project, written anew: how often each of many words stands in each of many files, and where first.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_GREP_H
#define BENCHMARKS_GLOOP_PROGRAMS_GREP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GREP_WORD = 16,  /* bytes of a word, with the zeros behind it */
    GREP_PATH = 256, /* of a path */
};

/* What the output has for each file and word, in their order. */
struct grep_match {
    uint32_t nr, first; /* the first is GREP_NONE where there is none */
};
#define GREP_NONE UINT32_MAX

struct grep_search {
    const char *texts;          /* of all files, one after the other */
    const char *words;          /* GREP_WORD each */
    struct grep_match *matches; /* [file][word] */
    uint32_t text_bytes;        /* of each file */
    int nr_files, nr_words;
};

void grep_loops(const struct grep_search *search);

#ifdef __cplusplus
}
#endif

#endif
