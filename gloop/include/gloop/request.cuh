/* Requests of a block and the answers to them: the device's side of fs.cuh and net.cuh. */
#ifndef GLOOP_REQUEST_CUH
#define GLOOP_REQUEST_CUH

#include <cerrno>

#include "device_loop.cuh"

namespace gloop
{
namespace detail
{

/* By all threads of a block. Past the first level of cache, as the other side of the bus may have written the source.
 */
__device__ inline void copy_bytes(unsigned char *target, const unsigned char *source, std::size_t bytes)
{
    const bool is_aligned =
        ((reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source)) & 15) == 0;
    const std::size_t quads = is_aligned ? bytes / 16 : 0;
    for (std::size_t quad = thread_rank(); quad < quads; quad += nr_threads()) {
        reinterpret_cast<uint4 *>(target)[quad] = __ldcv(reinterpret_cast<const uint4 *>(source) + quad);
    }
    for (std::size_t byte = 16 * quads + thread_rank(); byte < bytes; byte += nr_threads()) {
        target[byte] = __ldcv(source + byte);
    }
}

__device__ inline std::size_t length_of(const char *name)
{
    std::size_t length = 0;
    while (length < name_bytes && name[length]) {
        length++;
    }
    return length;
}

/* What the device knows before it asks: 0, or minus errno. */
__device__ inline std::int64_t refusal_of(const Line &line, const char *name)
{
    if (name && length_of(name) == name_bytes) {
        return -ENAMETOOLONG;
    }
    /* Shared memory is not there any more when the answer comes after a suspension, and the driver does not reach it.
     */
    return line.address && !__isGlobal(reinterpret_cast<const void *>(line.address)) ? -EFAULT : 0;
}

} // namespace detail

template <class Where>
template <class Callback>
__device__ void DeviceLoop<Where>::request(detail::Line line, const char *name,
                                           const Callback &callback GLOOP_WHERE_AGAIN)
{
    const unsigned number = take_high();
    store(number, &detail::run_answer<DeviceLoop, Callback>, callback GLOOP_HERE);
    const std::int64_t refusal = detail::refusal_of(line, name);
    if (refusal) {
        if (detail::is_first_thread()) {
            slot_at(number).result = refusal;
        }
        place_.ready |= 1u << number;
        return;
    }
    __syncthreads(); /* no thread still writes what goes out, or reads where something comes in */
    const bool is_outward = line.call == detail::Call::write || line.call == detail::Call::send;
    const std::uint32_t page = is_outward && line.bytes <= detail::page_bytes ? take_page() : 0;
    if (page) {
        unsigned char *place = launch_->pages + (page - 1) * detail::page_bytes;
        line.page = reinterpret_cast<std::uint64_t>(place);
        detail::copy_bytes(place, reinterpret_cast<const unsigned char *>(line.address), line.bytes);
        __threadfence_system();
        __syncthreads();
    }
    place_.waiting |= 1u << number;
    place_.asked ^= 1u << number;
    if (detail::is_first_thread()) {
        const std::size_t place = std::size_t(blockIdx.x) * detail::slots_per_block + number;
        if (name) {
            detail::copy_text(launch_->names + place * detail::name_bytes, detail::name_bytes, name);
        }
        slot_at(number).page = page;
        launch_->lines[place] = line;
        publish();
    }
}

/* By the first thread: all that it wrote before is seen by whoever sees these words. */
template <class Where> __device__ void DeviceLoop<Where>::publish()
{
    auto *words = reinterpret_cast<std::uint64_t *>(&launch_->asked[blockIdx.x]);
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> both(*words);
    both.store(place_.asked | std::uint64_t(place_.released) << 32, cuda::std::memory_order_release);
}

/* By the first thread, one read across the bus: slots that are answered, and orders above them. */
template <class Where> __device__ std::uint64_t DeviceLoop<Where>::answers_of_now()
{
    auto *words = reinterpret_cast<std::uint64_t *>(&launch_->answers[blockIdx.x]);
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> both(*words);
    const std::uint64_t seen = both.load(cuda::std::memory_order_acquire);
    const std::uint32_t answered = place_.waiting & ~(place_.asked ^ static_cast<std::uint32_t>(seen));
    return answered | std::uint64_t(seen >> 32 ? order_exit : 0) << 32;
}

template <class Where> __device__ void DeviceLoop<Where>::collect(std::uint64_t told)
{
    orders_ |= static_cast<std::uint32_t>(told >> 32);
    for (std::uint32_t answered = static_cast<std::uint32_t>(told); answered; answered &= answered - 1) {
        take_answer(__ffs(static_cast<int>(answered)) - 1);
    }
}

template <class Where> __device__ void DeviceLoop<Where>::take_answer(unsigned number)
{
    const std::uint32_t bit = 1u << number;
    std::uint64_t result = 0, page = 0, address = 0;
    if (detail::is_first_thread()) {
        const detail::Line &line = launch_->lines[std::size_t(blockIdx.x) * detail::slots_per_block + number];
        result = *static_cast<const volatile std::int64_t *>(&line.result);
        page = *static_cast<const volatile std::uint64_t *>(&line.page);
        address = *static_cast<const volatile std::uint64_t *>(&line.address);
        detail::Slot &slot = slot_at(number);
        slot.result = static_cast<std::int64_t>(result);
        if (slot.page) {
            atomicAnd(&launch_->control->busy_pages[(slot.page - 1) / 32], ~(1u << (slot.page - 1) % 32));
        }
    }
    place_.waiting &= ~bit;
    place_.ready |= bit;
    page = tell(page);
    if (page == 0) {
        return;
    }
    result = tell(result);
    address = tell(address);
    detail::copy_bytes(reinterpret_cast<unsigned char *>(address), reinterpret_cast<const unsigned char *>(page),
                       result);
    __syncthreads();
    place_.released ^= bit;
    if (detail::is_first_thread()) {
        publish();
    }
}

/* A page of those for what is written, counted from 1; 0 when all are in use, and the driver has to copy. */
template <class Where> __device__ std::uint32_t DeviceLoop<Where>::take_page()
{
    std::uint32_t taken = 0;
    for (unsigned word = 0; detail::is_first_thread() && !taken && word < detail::pages_each_way / 32; word++) {
        std::uint32_t *busy = &launch_->control->busy_pages[word];
        for (std::uint32_t seen = detail::load(busy); !taken && ~seen; seen = detail::load(busy)) {
            const unsigned bit = __ffs(static_cast<int>(~seen)) - 1;
            if (!(atomicOr(busy, 1u << bit) & 1u << bit)) {
                taken = 32 * word + bit + 1;
            }
        }
    }
    return static_cast<std::uint32_t>(tell(taken));
}

} // namespace gloop

#endif
