/* Names and texts of errors. */
#include <stddef.h>

#include "cuda_api/prototypes.h"

struct result_text {
    const char *name;
    const char *text;
};

static struct result_text result_text(CUresult error)
{
    switch (error) {
#define RESULT_CASE(result, number, words)                                                                             \
    case result:                                                                                                       \
        return (struct result_text){#result, words};
        FGV_RESULTS(RESULT_CASE)
#undef RESULT_CASE
    }
    return (struct result_text){NULL, NULL};
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = result_text(error).name;
    return !*pStr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = result_text(error).text;
    return !*pStr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
