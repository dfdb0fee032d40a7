/* How a block ends the program's kernel with a message, which host.launch throws. */
#ifndef GLOOP_FAILURE_CUH
#define GLOOP_FAILURE_CUH

#include "wire.cuh"

#ifdef GLOOP_CHECK
#define GLOOP_WHERE       , const char *caller = __builtin_FILE(), int caller_line = __builtin_LINE()
#define GLOOP_WHERE_AGAIN , const char *caller, int caller_line
#define GLOOP_HERE        , caller, caller_line
#else
#define GLOOP_WHERE_AGAIN
#define GLOOP_WHERE
#define GLOOP_HERE
#endif

namespace gloop
{
namespace detail
{

__device__ inline void copy_text(char *target, std::size_t bytes, const char *text)
{
    std::size_t length = 0;
    for (; length + 1 < bytes && text[length]; length++) {
        target[length] = text[length];
    }
    target[length] = 0;
}

/* By any thread: one that ends here has written all of it before, so it does not matter who else does. */
__device__ inline void fail(Failure *failure, const char *text, const char *file = "", int line = 0)
{
    copy_text(failure->text, sizeof(failure->text), text);
    copy_text(failure->file, sizeof(failure->file), file);
    failure->line = line;
    __threadfence_system();
    *static_cast<volatile std::uint32_t *>(&failure->is_set) = 1;
    __threadfence_system();
    __trap();
}

} // namespace detail
} // namespace gloop

#endif
