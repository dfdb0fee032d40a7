/*
 * Memory of a host loop, and a thread's own way of copying. Memory is made before a kernel begins, as making it may
 * wait for the kernel's end.
 */
#pragma once

#include <memory>

#include "options.cuh"

namespace gloop::detail
{

using Memory = std::shared_ptr<unsigned char>;

/* Pinned memory is at one address on both sides, as everywhere with 64 bits. */
inline Memory make_memory(std::size_t bytes, bool is_pinned)
{
    void *pointer = nullptr;
    const cudaError_t result = is_pinned ? cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped)
                                         : cudaMalloc(&pointer, bytes);
    check(result, std::to_string(bytes) + (is_pinned ? " bytes of pinned memory" : " bytes of device memory"));
    return Memory(static_cast<unsigned char *>(pointer), is_pinned ? cudaFreeHost : cudaFree);
}

/* Cuts one allocation into arrays: without memory it only counts. */
struct Cutter {
    unsigned char *memory = nullptr;
    std::size_t bytes = 0;

    template <class Thing> void cut(Thing *&things, std::size_t count)
    {
        things = reinterpret_cast<Thing *>(memory + bytes);
        bytes += (count * sizeof(Thing) + 255) / 256 * 256;
    }
};

class Copier
{
  public:
    static constexpr std::size_t bytes_at_once = 1024 * 1024;

    Copier() : staging_(make_memory(bytes_at_once, true))
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
        copy(staging(), reinterpret_cast<void *>(source), bytes);
    }

  private:
    void copy(void *target, const void *source, std::size_t bytes)
    {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_), "a copy between host and device");
        check(cudaStreamSynchronize(stream_), "a copy between host and device");
    }

    Memory staging_;
    cudaStream_t stream_ = nullptr;
};

} // namespace gloop::detail
