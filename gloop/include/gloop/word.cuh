/* The word in device memory that says: give way. FairGV's libcuda.so.1 sets it, where the program runs on that; it
 * takes one for each context, so all host loops of a device share it. Elsewhere nobody sets it. */
#pragma once

#include <dlfcn.h>
#include <map>
#include <mutex>

#include "memory.cuh"

namespace gloop::detail
{
inline void *find_in_driver(const char *name)
{
    static void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* which the runtime has loaded */
    return driver ? dlsym(driver, name) : nullptr;
}

inline std::shared_ptr<uint32_t> make_word(int device)
{
    const Memory memory = make_memory(sizeof(uint32_t), false);
    uint32_t *const pointer = reinterpret_cast<uint32_t *>(memory.get());
    const std::shared_ptr<uint32_t> word(pointer, [memory, device](uint32_t *) {
        int current = device;
        cudaGetDevice(&current), cudaSetDevice(device);
        if (const auto detach = reinterpret_cast<int (*)()>(find_in_driver("fairgv_yield_detach"))) { detach(); }
        cudaSetDevice(current);
    });
    check(cudaMemset(pointer, 0, sizeof(uint32_t)), "the word to give way");
    const auto attach = reinterpret_cast<int (*)(unsigned long long)>(find_in_driver("fairgv_yield_attach"));
    const int result = attach ? attach(reinterpret_cast<unsigned long long>(pointer)) : 0;
    if (result != 0) { throw Error::of("fairgv_yield_attach returns error ", result); }
    return word;
}

/* Of the current device. */
inline std::shared_ptr<uint32_t> word_of(int device)
{
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<uint32_t>> words;
    const std::lock_guard lock(mutex);
    std::shared_ptr<uint32_t> word = words[device].lock();
    if (!word) { words[device] = word = make_word(device); }
    return word;
}
} // namespace gloop::detail
