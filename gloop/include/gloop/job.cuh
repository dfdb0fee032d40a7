/* A request on the host, and what every thread that serves requests needs: a stream and pinned memory for the driver's
 * copies. */
#ifndef GLOOP_JOB_CUH
#define GLOOP_JOB_CUH

#include <algorithm>
#include <cerrno>
#include <vector>

#include "memory.cuh"
#include "wire.cuh"

namespace gloop
{
namespace detail
{

struct Job {
    std::size_t place; /* block * slots_per_block + slot */
    Line line;
    std::string name;
    std::vector<unsigned char> data; /* of a socket: what came, or is to be sent */
    std::size_t sent = 0;
};

class Copier
{
  public:
    static constexpr std::size_t bytes_at_once = 1024 * 1024;

    Copier() : staging_(make_pinned_memory(bytes_at_once))
    {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream for copies");
    }
    ~Copier() { cudaStreamDestroy(stream_); }
    Copier(const Copier &) = delete;
    Copier &operator=(const Copier &) = delete;

    unsigned char *staging() const { return staging_.get(); }

    void to_device(std::uint64_t target, std::size_t bytes)
    {
        copy(reinterpret_cast<void *>(target), staging(), bytes);
    }
    void from_device(std::uint64_t source, std::size_t bytes)
    {
        copy(staging(), reinterpret_cast<const void *>(source), bytes);
    }

  private:
    void copy(void *target, const void *source, std::size_t bytes)
    {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_), "a copy between host and device");
        check(cudaStreamSynchronize(stream_), "a copy between host and device");
    }

    PinnedMemory staging_;
    cudaStream_t stream_ = nullptr;
};

} // namespace detail
} // namespace gloop

#endif
