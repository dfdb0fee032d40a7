/* The kernel of an event loop: begin, one callback after another, look, wait, leave. */
#pragma once

#include "device_loop.cuh"

namespace gloop::detail
{
template <class Where>
template <class Entry>
__device__ void DeviceLoop<Where>::run(const Launch &launch, const Entry &entry)
{
    __builtin_assume(__isShared(this));
    if (!begin(launch)) { return; }
    const bool is_first = Thread::is_first();
    for (unsigned number = 0;; number++) {
        Step<DeviceLoop> &shown = steps_[number % 2];
        if (is_first) { shown = next_step(number > 0); }
        __syncthreads();
        const Step<DeviceLoop> step = shown;
        if (step.run) {
            step.run(this, unsigned(step.value));
        } else if (step.kind() == Kind::begin) {
            if (is_first) { logical_ = step.number(); }
            __syncthreads();
            entry(this);
        } else if (step.kind() == Kind::collect) {
            collect(step.number());
        } else {
            leave(Left(step.number()));
            return;
        }
    }
}

/* By the first thread, as the next ones. Callbacks are called in turn: a chain holds up no answer for long. */
template <class Where> __device__ Step<DeviceLoop<Where>> DeviceLoop<Where>::next_step(bool is_looking)
{
    Place place = place_;
    void *first = nullptr, *second = nullptr;
    if constexpr (is_near) { first = near_[0].callback, second = near_[1].callback; }
    if (!is_looking || is_time(1) | (place.ready == 0)) {
        const Step<DeviceLoop> rare = rare_step(is_looking);
        if (rare.kind() != Kind::call) { return rare; }
        place = place_;
    }
    const uint32_t later = place.ready & (~0u << place.current << 1);
    const uint32_t number = lowest(later ? later : place.ready), bit = 1u << number;
    place_.free = place.free | place.running;
    place_.ready = place.ready & ~bit;
    place_.running = bit, place_.current = number;
    void *callback = number ? second : first;
    if (!is_near || number > 1) { callback = context_->slots[number].callback; }
    return {reinterpret_cast<Run<DeviceLoop>>(callback), number};
}

/* One callback at least before the first look: so every kernel gets on, however often it is told to give way. */
template <class Where> __device__ Step<DeviceLoop<Where>> DeviceLoop<Where>::rare_step(bool is_looking)
{
    place_.free |= place_.running, place_.running = 0;
    if (watch_.orders & order_fail) {
        fail(launch_->failure, "a block has 32 slots, for callbacks that wait and for the one that runs");
    }
    if (is_looking && is_time(0)) { look(); }
    if (!place_.ready && !place_.arrived && place_.waiting && !watch_.orders) { wait(); }
    if (watch_.orders) {
        const bool is_ready = place_.ready || place_.arrived || !place_.waiting;
        const Left left = watch_.orders & order_exit ? Left::forced : is_ready ? Left::ready : Left::waiting;
        return Step<DeviceLoop>::of(Kind::leave, uint32_t(left));
    }
    if (place_.arrived) { return Step<DeviceLoop>::of(Kind::collect, uint32_t(__ffs(int(place_.arrived)) - 1)); }
    if (place_.ready) { return Step<DeviceLoop>::of(Kind::call, 0); }
    /* The first has the block's number, as the device deals out evenly; later ones are for whoever is done. Blocks that
     * find none count as well, so that the last one of all makes it zero for the next launch. */
    const bool is_later = place_.logical != no_logical;
    const uint32_t nr_logical = launch_->logical.x * launch_->logical.y * launch_->logical.z;
    place_.logical = is_later ? gridDim.x + atomicInc(&launch_->control->next, nr_logical - 1) : blockIdx.x;
    place_.keeps = 0;
    if (place_.logical < nr_logical) { return Step<DeviceLoop>::of(Kind::begin, place_.logical); }
    return Step<DeviceLoop>::of(Kind::leave, uint32_t(Left::finished));
}

/* By all threads. False where this block had finished before. */
template <class Where> __device__ bool DeviceLoop<Where>::begin(const Launch &launch)
{
    Context *context = &launch.contexts[blockIdx.x];
    if (launch.is_resumed && context->place.is_finished) { return false; }
    if (Thread::is_first()) {
        launch_ = &launch, context_ = context;
        watch_ = {uint32_t(clock()), uint32_t(launch.look_cycles), launch.points, 0};
        place_ = {~0u, 0, 0, 0, 0, 0, 0, 0, (1u << own_places) - 1, no_logical, 0, 0};
        if (launch.is_resumed) { place_ = context->place, logical_ = context->place.logical; }
        atomicAdd(&launch.control->begun, 1);
    }
    if (launch.is_resumed) {
        __syncthreads();
        move_kept(false);
        __syncthreads();
    }
    return true;
}

/* Whether there is something better to do than to go on. */
template <class Where> __device__ __noinline__ bool DeviceLoop<Where>::look()
{
    watch_.looked = uint32_t(clock());
    if (place_.waiting) { take_answers(); }
    if (is_told_to_leave() || (launch_->points && watch_.points_left == 0)) { watch_.orders |= order_leave; }
    if (watch_.orders || place_.arrived) { watch_.points_left = 1; } /* so that the next point sees it */
    return watch_.orders || place_.ready || place_.arrived;
}

/* For answers, as there is nothing else to do. When all blocks in the kernel have been idle for long, it ends. One that
 * goes on at this very moment sees `stop` at its next look, and the host launches the kernel again at once. */
template <class Where> __device__ void DeviceLoop<Where>::wait()
{
    const uint64_t since = clock64();
    bool is_idle = false;
    for (unsigned nap_ns = 32; !take_answers(); nap_ns = min(nap_ns + nap_ns / 4, 2000)) {
        if (launch_->idle_cycles && !is_idle && uint64_t(clock64()) - since > launch_->idle_cycles) {
            is_idle = true;
            atomicAdd(&launch_->control->idle, 1);
        }
        const bool is_end = is_idle && control()->idle >= control()->begun;
        if (is_end || is_told_to_leave()) { watch_.orders |= order_leave; }
        __nanosleep(watch_.orders ? 0 : nap_ns);
    }
    if (is_idle) { atomicSub(&launch_->control->idle, 1); }
    watch_.looked = uint32_t(clock());
}

/* By all threads, behind a barrier: no callback runs, and what the first one wrote into slots is seen. */
template <class Where> __device__ void DeviceLoop<Where>::leave(Left left)
{
    if (left == Left::ready || left == Left::waiting) { move_kept(true); }
    if (Thread::is_first()) {
        place_.is_finished = left == Left::finished;
        context_->place = place_;
        if (!place_.is_finished || launch_->is_resumed) { launch_->states[blockIdx.x] = {left, place_.waiting}; }
        if (left != Left::finished) { atomicExch(&launch_->control->stop, 1); }
        atomicSub(&launch_->control->begun, 1);
    }
}

template <class Where> __device__ __noinline__ void DeviceLoop<Where>::keep(void *pointer, size_t bytes)
{
    const uint32_t offset = uint32_t(__cvta_generic_to_shared(pointer));
    __syncthreads(); /* programs fill it before */
    if (!Thread::is_first()) { return; }
    if (!__isShared(pointer) || offset % 8 || bytes % 8) {
        fail(launch_->failure, "keep names what is not shared memory, or no multiple of 8 bytes");
    }
    uint32_t number = place_.keeps;
    uint64_t total = bytes;
    for (uint32_t other = 0; other < place_.keeps; other++) {
        const Keep &each = context_->keeps[other];
        if (each.offset == offset || (number == place_.keeps && !each.bytes)) { number = other; }
        total += each.offset == offset ? 0 : each.bytes;
    }
    if (number == most_keeps || total > launch_->kept_bytes) {
        fail(launch_->failure, "keep names more than 8 pieces, or more shared memory than the kernel has");
    }
    context_->keeps[number] = {offset, uint32_t(bytes)};
    place_.keeps = max(place_.keeps, number + 1);
}

template <class Where> __device__ __noinline__ void DeviceLoop<Where>::move_kept(bool is_saved)
{
    const auto move = [=](void *far, void *near, size_t bytes) {
        copy_words(is_saved ? far : near, is_saved ? near : far, bytes);
    };
    if constexpr (is_near) { move(context_->slots, near_, sizeof(near_)); }
    uint64_t at = blockIdx.x * launch_->kept_bytes;
    for (uint32_t number = 0; number < place_.keeps; number++) {
        const Keep &keep = context_->keeps[number];
        move(launch_->kept + at, __cvta_shared_to_generic(keep.offset), keep.bytes);
        at += keep.bytes;
    }
}
} // namespace gloop::detail
