/* Requests of a block and the answers to them: the device's side of calls.cuh. */
#pragma once

#include <cerrno>

#include "device_loop.cuh"

namespace gloop::detail
{
__device__ inline uint64_t address_of(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

/* By all threads. Past the first level of cache, as the other side of the bus may have written the source. */
__device__ inline void copy_bytes(uint64_t target, uint64_t source, size_t bytes)
{
    const size_t quads = ((target | source) & 15) == 0 ? bytes / 16 : 0;
    for (size_t quad = Thread::rank(); quad < quads; quad += Thread::count()) {
        reinterpret_cast<uint4 *>(target)[quad] = __ldcv(reinterpret_cast<const uint4 *>(source) + quad);
    }
    for (size_t byte = 16 * quads + Thread::rank(); byte < bytes; byte += Thread::count()) {
        reinterpret_cast<char *>(target)[byte] = __ldcv(reinterpret_cast<const char *>(source) + byte);
    }
}

/* What the device knows before it asks: 0, or minus errno. */
__device__ inline int64_t refusal_of(const Line &line, const char *name)
{
    for (size_t length = 0; name && name[length]; length++) {
        if (length == name_bytes - 1) { return -ENAMETOOLONG; }
    }
    /* Shared memory may be another one when the answer comes, and the driver does not reach it. */
    return line.address && !__isGlobal(reinterpret_cast<const void *>(line.address)) ? -EFAULT : 0;
}

template <class Where>
template <class Callback>
__device__ void DeviceLoop<Where>::request(Line line, const char *name, const Callback &callback GLOOP_WHERE_AGAIN)
{
    const unsigned number = take(31 - __clz(int(place_.free)));
    store(number, &run_answer<DeviceLoop, Callback>, callback GLOOP_HERE);
    const int64_t refusal = refusal_of(line, name);
    const bool is_for_page = !refusal && line.bytes <= launch_->page_bytes;
    const uint32_t page = is_for_page ? uint32_t(line.page) & ~place_.busy_pages : 0;
    place_.busy_pages |= page;
    __syncthreads(); /* no thread still writes what goes out, or reads where something comes in */
    line.page = page ? address_of(page_at(page)) : 0;
    if (page == page_out) {
        copy_bytes(line.page, line.address, line.bytes);
        __threadfence_system();
        __syncthreads();
    }
    (refusal ? place_.ready : place_.waiting) |= 1u << number;
    place_.asked ^= refusal ? 0 : 1u << number;
    if (Thread::is_first()) {
        Slot &slot = slot_at(number);
        slot.result = refusal;
        slot.address = line.address;
        slot.page = page;
        const size_t place = size_t(blockIdx.x) * slots_per_block + number;
        if (name && !refusal) { copy_text(launch_->names + place * name_bytes, name_bytes, name); }
        launch_->lines[place] = line;
        /* All that was written before is seen by whoever sees this word. */
        cuda::atomic_ref<uint32_t, cuda::thread_scope_system> asked(launch_->asked[blockIdx.x]);
        asked.store(place_.asked, cuda::std::memory_order_release);
    }
}

/* By the first thread, one read across the bus: slots that are answered, and orders above them. */
template <class Where> __device__ uint64_t DeviceLoop<Where>::answers_of_now()
{
    auto *words = reinterpret_cast<uint64_t *>(&launch_->answers[blockIdx.x]);
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system> both(*words);
    const uint64_t seen = both.load(cuda::std::memory_order_acquire);
    const uint32_t answered = place_.waiting & ~(place_.asked ^ uint32_t(seen));
    return answered | uint64_t(seen >> 32 ? order_exit : 0) << 32;
}

/* By all threads: takes what `answers_of_now` saw. */
template <class Where> __device__ __noinline__ void DeviceLoop<Where>::collect(uint64_t told)
{
    orders_ |= uint32_t(told >> 32);
    for (uint32_t answered = uint32_t(told); answered; answered &= answered - 1) {
        const unsigned number = __ffs(int(answered)) - 1;
        const Line &line = launch_->lines[size_t(blockIdx.x) * slots_per_block + number];
        Slot &slot = slot_at(number);
        if (Thread::is_first()) { slot.result = *static_cast<const volatile int64_t *>(&line.result); }
        if (slot.page == page_in) {
            const auto result = static_cast<int64_t>(tell(Thread::is_first() ? slot.result : 0));
            copy_bytes(slot.address, address_of(page_at(page_in)), result > 0 ? result : 0);
        }
        place_.busy_pages &= ~slot.page;
        place_.waiting &= ~(1u << number);
        place_.ready |= 1u << number;
    }
}
} // namespace gloop::detail
