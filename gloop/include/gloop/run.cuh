/* The kernel of an event loop: begin, one callback after another, look, wait, leave. */
#pragma once

#include "device_loop.cuh"

namespace gloop::detail
{
template <class Where> template <class Entry> __device__ void DeviceLoop<Where>::run(const Entry &entry)
{
    if (!launch_->is_resumed) {
        begin_fresh();
    } else if (!begin_again()) {
        return;
    }
    /* One callback at least before the first look: so every kernel gets on, however often it is told to give way. */
    for (;;) {
        if (place_.ready) {
            call_next();
        } else if (place_.waiting) {
            wait();
        } else if (begin_logical_block()) {
            entry(this);
        } else {
            leave(Left::finished);
            return;
        }
        const bool is_time_to_look = __syncthreads_or(is_time());
        place_.free |= running_;
        running_ = 0;
        if (is_time_to_look && !orders_) { look(); }
        if (orders_) {
            const bool is_ready = place_.ready || !place_.waiting;
            leave(orders_ & order_exit ? Left::forced : is_ready ? Left::ready : Left::waiting);
            return;
        }
    }
}

template <class Where> __device__ void DeviceLoop<Where>::begin_fresh()
{
    place_ = {};
    place_.logical = no_logical;
    place_.free = ~0u;
    place_.own_free = (1u << own_places) - 1;
    points_left_ = launch_->points;
    if (Thread::is_first()) {
        atomicAdd(&launch_->control->begun, 1);
        looked_ = clock64();
    }
}

/* False where this block had finished before. */
template <class Where> __device__ __noinline__ bool DeviceLoop<Where>::begin_again()
{
    if (context_->place.is_finished) { return false; }
    begin_fresh();
    place_ = context_->place;
    if constexpr (std::is_same_v<Where, Shared>) { copy_words(slots_->near, context_->slots, sizeof(slots_->near)); }
    move_kept(false);
    __syncthreads();
    return true;
}

/* In turn, from the one after the last: a chain of tasks holds up no answer for longer than 32 points. */
template <class Where> __device__ void DeviceLoop<Where>::call_next()
{
    const uint32_t later = place_.ready & (~0u << place_.current << 1);
    place_.current = __ffs(int(later ? later : place_.ready)) - 1;
    running_ = 1u << place_.current;
    place_.ready &= ~running_;
    const Slot &slot = slot_at(place_.current);
    reinterpret_cast<Run<DeviceLoop>>(slot.callback)(this, slot);
}

/* The first has the block's number, as the device deals out evenly; later ones are for whoever is done. */
template <class Where> __device__ bool DeviceLoop<Where>::begin_logical_block()
{
    const uint32_t *grid = launch_->logical;
    const bool is_later = place_.logical != no_logical;
    place_.logical =
        is_later ? gridDim.x + tell(Thread::is_first() ? atomicAdd(&launch_->control->next, 1) : 0) : blockIdx.x;
    place_.keeps = 0;
    return place_.logical < grid[0] * grid[1] * grid[2];
}

template <class Where> __device__ __noinline__ void DeviceLoop<Where>::look()
{
    uint64_t told = 0;
    if (Thread::is_first()) {
        looked_ = clock64();
        const bool is_leaving = is_told_to_leave() || (launch_->points && points_left_ == 0);
        told = (place_.waiting ? answers_of_now() : 0) | uint64_t(is_leaving ? order_leave : 0) << 32;
    }
    collect(tell(told));
}

/* For answers, as there is nothing else to do. The first thread polls; the others wait at the barrier in `tell`. */
template <class Where> __device__ __noinline__ void DeviceLoop<Where>::wait()
{
    uint64_t told = 0;
    if (Thread::is_first()) {
        const uint64_t since = clock64();
        bool is_counted = false;
        for (unsigned nap_ns = 64; !(told = answers_of_now()); nap_ns = nap_ns < 1000 ? 2 * nap_ns : 2000) {
            if (is_told_to_leave() || is_idle_end(&is_counted, since)) {
                told = uint64_t(order_leave) << 32;
                break;
            }
            __nanosleep(nap_ns);
        }
        if (is_counted) { atomicSub(&launch_->control->idle, 1); }
        looked_ = clock64();
    }
    collect(tell(told));
}

/*
 * Whether all blocks in the kernel have been idle for long. One that goes on at this very moment sees `stop` at its
 * next look, and the host launches the kernel again at once, as that block is ready.
 */
template <class Where> __device__ bool DeviceLoop<Where>::is_idle_end(bool *is_counted, uint64_t since)
{
    if (launch_->idle_cycles && !*is_counted && uint64_t(clock64()) - since > launch_->idle_cycles) {
        *is_counted = true;
        atomicAdd(&launch_->control->idle, 1);
    }
    return *is_counted && control()->idle >= control()->begun;
}

/* Behind a barrier: no callback runs, and what the first thread wrote into slots is seen. */
template <class Where> __device__ __noinline__ void DeviceLoop<Where>::leave(Left left)
{
    if (left == Left::ready || left == Left::waiting) {
        if constexpr (std::is_same_v<Where, Shared>) {
            copy_words(context_->slots, slots_->near, sizeof(slots_->near));
        }
        move_kept(true);
    }
    if (Thread::is_first()) {
        place_.is_finished = left == Left::finished;
        context_->place = place_;
        launch_->states[blockIdx.x] = {left, place_.waiting};
        if (left != Left::finished) { atomicExch(&launch_->control->stop, 1); }
        atomicSub(&launch_->control->begun, 1);
    }
}

template <class Where> __device__ __noinline__ void DeviceLoop<Where>::keep(void *pointer, size_t bytes)
{
    const uint32_t offset = uint32_t(__cvta_generic_to_shared(pointer));
    if (!__isShared(pointer) || offset % 8 || bytes % 8) {
        fail_all("keep names what is not shared memory, or no multiple of 8 bytes");
    }
    __syncthreads(); /* of the first thread's last keep */
    uint32_t number = 0;
    uint64_t total = bytes;
    for (uint32_t other = 0; other < place_.keeps; other++) {
        if (context_->keeps[other].offset == offset) {
            number = other + 1;
        } else {
            total += context_->keeps[other].bytes;
        }
    }
    if (number == 0) { number = ++place_.keeps; }
    if (number > most_keeps || total > launch_->kept_bytes) {
        fail_all("keep names more than 8 pieces, or more shared memory than the kernel has");
    }
    __syncthreads();
    if (Thread::is_first()) { context_->keeps[number - 1] = {offset, uint32_t(bytes)}; }
}

template <class Where> __device__ __noinline__ void DeviceLoop<Where>::move_kept(bool is_saved)
{
    uint64_t place = blockIdx.x * launch_->kept_bytes;
    for (uint32_t number = 0; number < place_.keeps; number++) {
        const Keep &keep = context_->keeps[number];
        void *shared = __cvta_shared_to_generic(keep.offset);
        if (is_saved) {
            copy_words(launch_->kept + place, shared, keep.bytes);
        } else {
            copy_words(shared, launch_->kept + place, keep.bytes);
        }
        place += keep.bytes;
    }
}
} // namespace gloop::detail
