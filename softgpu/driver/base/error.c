/* Names and words of errors. */
#include <stddef.h>

#include "base/driver.h"
#include "cuda_api/prototypes.h"

struct error_words {
    CUresult error;
    const char *name;
    const char *text;
};

#define WORDS(error, number, text) {(CUresult)(number), #error, text},
static const struct error_words words[] = {FGV_RESULTS(WORDS)};
#undef WORDS

static const struct error_words *find(CUresult error)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].error == error) {
            return &words[i];
        }
    }
    return NULL;
}

SGP_EXPORT CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    const struct error_words *found = find(error);

    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SGP_EXPORT CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    const struct error_words *found = find(error);

    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
