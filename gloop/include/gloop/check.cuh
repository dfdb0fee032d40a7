/* -DGLOOP_CHECK: traps with file and line where two threads of a block post different callbacks, or capture different
 * values. */
#ifndef GLOOP_CHECK_CUH
#define GLOOP_CHECK_CUH

#include <new>

#include "failure.cuh"

namespace gloop
{
namespace detail
{

/* By all threads, after the first one stored what it posts. Bytes between values are zero on both sides. */
template <class Callback>
__device__ void compare(Failure *failure, void *const &posted, void *mine, const unsigned char *closure,
                        const Callback &callback, const char *file, int line)
{
    alignas(16) unsigned char bytes[sizeof(Callback)];
    memset(bytes, 0, sizeof(bytes));
    new (bytes) Callback(callback);
    __syncthreads();
    bool is_same = posted == mine;
    for (std::size_t byte = 0; is_same && byte < sizeof(bytes); byte++) {
        is_same = bytes[byte] == closure[byte];
    }
    if (!is_same) {
        fail(failure, "threads of a block post different callbacks, or capture different values", file, line);
    }
    __syncthreads();
}

} // namespace detail
} // namespace gloop

#endif
