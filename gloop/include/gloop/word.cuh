/*
 * The word in device memory that says: give way. FairGV's libcuda.so.1 sets it, where the program runs on that; it
 * finds one for each context, so all host loops of a device share it. Elsewhere nobody sets it.
 */
#ifndef GLOOP_WORD_CUH
#define GLOOP_WORD_CUH

#include <cstdint>
#include <dlfcn.h>
#include <map>
#include <mutex>

#include "memory.cuh"

namespace gloop
{
namespace detail
{

class Word
{
  public:
    /* Of the current device. */
    static std::shared_ptr<Word> of_device(int device)
    {
        static std::mutex mutex;
        static std::map<int, std::weak_ptr<Word>> words;
        const std::lock_guard<std::mutex> lock(mutex);
        std::shared_ptr<Word> word = words[device].lock();
        if (!word) {
            word = std::make_shared<Word>();
            words[device] = word;
        }
        return word;
    }

    Word() : memory_(make_device_memory(sizeof(std::uint32_t)))
    {
        check(cudaMemset(memory_.get(), 0, sizeof(std::uint32_t)), "the word to give way");
        using Attach = int (*)(unsigned long long);
        if (const auto attach = reinterpret_cast<Attach>(find("fairgv_yield_attach"))) {
            const int result = attach(reinterpret_cast<unsigned long long>(memory_.get()));
            if (result != 0) {
                throw Error("gloop: fairgv_yield_attach returns error " + std::to_string(result));
            }
        }
    }

    ~Word()
    {
        using Detach = int (*)();
        if (const auto detach = reinterpret_cast<Detach>(find("fairgv_yield_detach"))) {
            detach();
        }
    }

    Word(const Word &) = delete;
    Word &operator=(const Word &) = delete;

    const std::uint32_t *address() const { return reinterpret_cast<const std::uint32_t *>(memory_.get()); }

  private:
    static void *find(const char *name)
    {
        void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        void *found = driver ? dlsym(driver, name) : nullptr;
        if (driver) {
            dlclose(driver);
        }
        return found;
    }

    DeviceMemory memory_;
};

} // namespace detail
} // namespace gloop

#endif
