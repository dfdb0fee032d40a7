/* The search of grep.cu as plain loops. A word ends where no letter follows, and begins where none stands before it. */
#include <stdbool.h>
#include <string.h>

#include "grep.h"

static bool is_letter(char byte)
{
    return byte >= 'a' && byte <= 'z';
}

static struct grep_match find(const char *text, uint32_t nr_bytes, const char *word)
{
    struct grep_match match = {0, GREP_NONE};
    uint32_t length = strlen(word);
    for (uint32_t at = 0; at + length <= nr_bytes; at++) {
        if (text[at] == word[0] && memcmp(text + at, word, length) == 0 && (at == 0 || !is_letter(text[at - 1])) &&
            (at + length == nr_bytes || !is_letter(text[at + length]))) {
            match.first = match.nr++ == 0 ? at : match.first;
        }
    }
    return match;
}

void grep_loops(const struct grep_search *search)
{
#pragma omp parallel for schedule(dynamic, 1)
    for (int file = 0; file < search->nr_files; file++) {
        for (int word = 0; word < search->nr_words; word++) {
            search->matches[(long)file * search->nr_words + word] = find(
                search->texts + (long)file * search->text_bytes, search->text_bytes, search->words + word * GREP_WORD);
        }
    }
}
