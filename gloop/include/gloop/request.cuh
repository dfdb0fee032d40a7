/* Requests of a block and the answers to them: the device's side of gloop.cuh. */
#pragma once

#include <cerrno>

#include "device_loop.cuh"

namespace gloop::detail
{
__device__ inline uint64_t address_of(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

/* By all threads, where both lie alike in their 16 bytes. Past the first cache, as the host may have written. */
__device__ inline void copy_bytes(uint64_t target, uint64_t source, size_t bytes)
{
    const size_t head = min(size_t(-target % 16), bytes), quads = (bytes - head) / 16, step = Thread::count();
    const auto *from = reinterpret_cast<const uint4 *>(source + head);
    auto *to = reinterpret_cast<uint4 *>(target + head);
    for (size_t quad = Thread::rank(); quad < quads; quad += 2 * step) {
        const size_t second = quad + step < quads ? quad + step : quad;
        const uint4 loaded[] = {__ldcv(from + quad), __ldcv(from + second)};
        to[quad] = loaded[0], to[second] = loaded[1];
    }
#pragma unroll 1
    for (size_t byte = Thread::rank(); byte < bytes - 16 * quads; byte += step) {
        const size_t place = byte < head ? byte : byte + 16 * quads;
        *reinterpret_cast<char *>(target + place) = __ldcv(reinterpret_cast<const char *>(source + place));
    }
}

/* What the device knows before it asks. Shared memory may be another one at the answer, and no driver reaches it. */
__device__ inline int64_t refusal_of(const Line &line, const char *name)
{
    for (size_t length = 0; name && name[length]; length++) {
        if (length == name_bytes - 1) { return -ENAMETOOLONG; }
    }
    const void *buffer = reinterpret_cast<const void *>(line.address);
    return (buffer ? !__isGlobal(buffer) : line.page && line.bytes) ? -EFAULT : 0;
}

template <class Where>
template <class Callback>
__device__ void DeviceLoop<Where>::request(Line line, const char *name, const Callback &callback GLOOP_WHERE_AGAIN)
{
    const Run<DeviceLoop> run = &run_answer<DeviceLoop, Callback>;
    const int64_t refusal = refusal_of(line, name);
    uint32_t page = 0;
    if (line.address && !refusal) { /* no thread still writes what goes out, or reads where something comes in */
        page = tell([&] {
            const bool is_for_page = line.bytes <= launch_->page_bytes || line.call == Call::receive;
            const uint32_t found = is_for_page ? uint32_t(line.page) & ~place_.busy_pages : 0;
            place_.busy_pages |= found;
            return found;
        });
    }
    if (page == page_out) {
        copy_bytes(page_at(page, line.address), line.address, line.bytes);
        __threadfence_system();
        __syncthreads();
    }
    if (Thread::is_first()) {
        const unsigned number = fill(take(false, refusal), run, callback);
        Slot &slot = slot_at(number);
        slot.result = refusal;
        slot.address = line.address;
        slot.page = page;
        line.page = page ? page_at(page, line.address) : 0;
        if (page) { line.bytes = min(line.bytes, launch_->page_bytes); }
        if (!refusal) {
            const size_t place = size_t(blockIdx.x) * slots_per_block + number;
            if (name) { copy_text(launch_->names + place * name_bytes, name_bytes, name); }
            launch_->lines[place] = line;
            place_.waiting |= 1u << number;
            place_.asked ^= 1u << number;
            /* All that was written before is seen by whoever sees this word. */
            cuda::atomic_ref<uint32_t, cuda::thread_scope_system> asked(launch_->asked[blockIdx.x]);
            asked.store(place_.asked, cuda::std::memory_order_release);
        }
    }
    verify(run, callback GLOOP_HERE);
}

/* By the first thread: takes what the host has answered. One read across the bus, where only one answer is new. */
template <class Where> __device__ __noinline__ bool DeviceLoop<Where>::take_answers()
{
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system> word(launch_->answers[blockIdx.x].word);
    const uint64_t seen = word.load(cuda::std::memory_order_acquire);
    const uint32_t answered = place_.waiting & ~(place_.asked ^ uint32_t(seen));
    if (seen & Answers::order) { watch_.orders |= order_exit; }
#pragma unroll 1
    for (uint32_t left = answered; left; left &= left - 1) {
        const unsigned number = __ffs(int(left)) - 1;
        const Line &line = launch_->lines[size_t(blockIdx.x) * slots_per_block + number];
        Slot &slot = slot_at(number);
        slot.result = int64_t(seen) >> Answers::result_shift;
        if ((seen >> Answers::slot_shift & 63) != (number | slots_per_block)) {
            slot.result = *static_cast<const volatile int64_t *>(&line.result);
        }
        const bool is_in_page = slot.page == page_in && slot.result > 0;
        (is_in_page ? place_.arrived : place_.ready) |= 1u << number;
        if (!is_in_page) { place_.busy_pages &= ~slot.page; }
    }
    place_.waiting &= ~answered;
    return answered || watch_.orders;
}

/* By all threads: copies what came out of the page. */
template <class Where> __device__ __noinline__ void DeviceLoop<Where>::collect(unsigned number)
{
    const Slot &slot = slot_at(number);
    copy_bytes(slot.address, page_at(page_in, slot.address), slot.result);
    if (Thread::is_first()) { place_.ready |= place_.arrived, place_.arrived = 0, place_.busy_pages &= ~page_in; }
}
} // namespace gloop::detail
