/* Memory of a host loop, made before a kernel begins, as that may wait for its end; its word; a thread's copies. */
#pragma once

#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>

#include "options.cuh"

namespace gloop::detail
{
inline void check(cudaError_t result, const std::string &what)
{
    if (result != cudaSuccess) {
        cudaGetLastError(); /* so that the next call does not return it again, where it is not for good */
        throw Error::of(what, ": ", cudaGetErrorString(result));
    }
}

using Memory = std::shared_ptr<unsigned char>;

/* Pinned memory is at one address on both sides, as everywhere with 64 bits. */
inline Memory make_memory(size_t bytes, bool is_pinned)
{
    void *pointer = nullptr;
    const cudaError_t result = is_pinned ? cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped)
                                         : cudaMalloc(&pointer, bytes);
    check(result, std::to_string(bytes) + (is_pinned ? " bytes of pinned memory" : " bytes of device memory"));
    return Memory(static_cast<unsigned char *>(pointer), is_pinned ? cudaFreeHost : cudaFree);
}

/* Memory that serves each launch for which it is large enough. */
struct Array {
    bool is_pinned;
    size_t bytes = 0;
    Memory memory = nullptr;

    /* Whether it is new. */
    template <class Thing> bool make(Thing *&things, size_t count)
    {
        const bool is_new = count * sizeof(Thing) > bytes;
        if (is_new) {
            memory = nullptr, bytes = 0;
            memory = make_memory(count * sizeof(Thing), is_pinned);
            bytes = count * sizeof(Thing);
        }
        things = reinterpret_cast<Thing *>(memory.get());
        return is_new;
    }

    void clear() { std::memset(memory.get(), 0, bytes); }
};

/* The word to give way, of the current device. FairGV's libcuda.so.1 sets it, where the program runs on that; it takes
 * one for each context, so all host loops share it. Elsewhere nobody does. It ends with its memory. */
inline Memory word_of(int device)
{
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<unsigned char>> words;
    const std::lock_guard lock(mutex);
    Memory word = words[device].lock();
    if (word) { return word; }
    words[device] = word = make_memory(sizeof(uint32_t), false);
    check(cudaMemset(word.get(), 0, sizeof(uint32_t)), "the word to give way");
    void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* which the runtime has loaded */
    const auto attach = reinterpret_cast<int (*)(uint64_t)>(driver ? dlsym(driver, "fairgv_yield_attach") : nullptr);
    const int result = attach ? attach(reinterpret_cast<uint64_t>(word.get())) : 0;
    if (result != 0 && result != cudaErrorNotSupported) { throw Error::of("fairgv_yield_attach: error ", result); }
    return word;
}

class Copier
{
  public:
    static constexpr size_t bytes_at_once = 1024 * 1024;

    Copier() : staging_(make_memory(bytes_at_once, true))
    { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream for copies"); }
    ~Copier() { cudaStreamDestroy(stream_); }

    unsigned char *staging() const { return staging_.get(); }
    void to_device(uint64_t target, size_t bytes) { copy(reinterpret_cast<void *>(target), staging(), bytes); }
    void from_device(uint64_t source, size_t bytes) { copy(staging(), reinterpret_cast<void *>(source), bytes); }

    void copy(void *target, const void *source, size_t bytes)
    {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_), "a copy between host and device");
        check(cudaStreamSynchronize(stream_), "a copy between host and device");
    }

  private:
    Memory staging_;
    cudaStream_t stream_ = nullptr;
};
} // namespace gloop::detail
