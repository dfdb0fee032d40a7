/* What host.launch throws. */
#ifndef GLOOP_ERROR_CUH
#define GLOOP_ERROR_CUH

#include <cuda_runtime_api.h>
#include <stdexcept>
#include <string>

namespace gloop
{

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail
{

inline void check(cudaError_t result, const std::string &what)
{
    if (result != cudaSuccess) {
        cudaGetLastError(); /* so that the next call does not return it again, where it is not for good */
        throw Error("gloop: " + what + ": " + cudaGetErrorString(result));
    }
}

} // namespace detail
} // namespace gloop

#endif
