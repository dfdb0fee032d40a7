/* Memory of a host loop. It is made before a kernel begins, as making it may wait for the kernel's end. */
#ifndef GLOOP_MEMORY_CUH
#define GLOOP_MEMORY_CUH

#include <cstddef>
#include <memory>

#include "error.cuh"

namespace gloop
{
namespace detail
{

struct FreeDevice {
    void operator()(unsigned char *pointer) const { cudaFree(pointer); }
};
struct FreePinned {
    void operator()(unsigned char *pointer) const { cudaFreeHost(pointer); }
};
using DeviceMemory = std::unique_ptr<unsigned char, FreeDevice>;
using PinnedMemory = std::unique_ptr<unsigned char, FreePinned>;

inline DeviceMemory make_device_memory(std::size_t bytes)
{
    void *pointer = nullptr;
    check(cudaMalloc(&pointer, bytes), std::to_string(bytes) + " bytes of device memory");
    return DeviceMemory(static_cast<unsigned char *>(pointer));
}

/* At one address on both sides, as everywhere with 64 bits. */
inline PinnedMemory make_pinned_memory(std::size_t bytes)
{
    void *pointer = nullptr;
    check(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
          std::to_string(bytes) + " bytes of pinned memory");
    return PinnedMemory(static_cast<unsigned char *>(pointer));
}

/* Cuts one allocation into arrays: without memory it only counts. */
class Cutter
{
  public:
    explicit Cutter(unsigned char *memory = nullptr) : memory_(memory) {}

    template <class Thing> Thing *cut(std::size_t count)
    {
        Thing *things = reinterpret_cast<Thing *>(memory_ + bytes_);
        bytes_ += (count * sizeof(Thing) + 255) / 256 * 256;
        return things;
    }
    std::size_t bytes() const { return bytes_; }

  private:
    unsigned char *memory_;
    std::size_t bytes_ = 0;
};

} // namespace detail
} // namespace gloop

#endif
