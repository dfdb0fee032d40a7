/* The event loop of a block: it takes callbacks out of slots and calls them, one after another, all threads together.
 * It lies in shared memory: an object of each thread costs a point twice the time. The first thread alone knows what
 * waits, what is ready and what the time is. At a point it decides what all do next, and shows it behind a barrier.
 *
 * Wrong when: a program calls from some threads of a block only. -DGLOOP_CHECK finds what differs, not who lacks. */
#pragma once

#include <cuda/atomic>

#include "callback.cuh"

namespace gloop::detail
{
/* What all threads do next, loaded at once: they call what a slot has, or without `run` it is another kind. */
enum class Kind : uint32_t { call, begin, collect, leave };
template <class Loop> struct alignas(16) Step {
    Run<Loop> run;
    uint64_t value; /* the slot; or the kind, and above it a slot or why they leave */
    static __device__ Step of(Kind kind, uint32_t number) { return {nullptr, uint64_t(number) << 32 | uint32_t(kind)}; }
    __device__ Kind kind() const { return Kind(uint32_t(value)); }
    __device__ uint32_t number() const { return uint32_t(value >> 32); }
};

/* When the first thread looks next, by its own clock: no two clocks are ever compared. */
struct alignas(16) Watch {
    uint32_t looked, look_cycles, points_left, orders; /* why to leave */
};

struct Thread {
    static __device__ bool is_first() { return (threadIdx.x | threadIdx.y | threadIdx.z) == 0; }
    static __device__ unsigned rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static __device__ unsigned count() { return blockDim.x * blockDim.y * blockDim.z; }
};

/* Of a mask of slots. The general way takes long: a branch keeps it from slots that are near. */
__device__ inline unsigned lowest(uint32_t mask)
{
    if (mask & 3) { return ~mask & 1; }
    asm volatile("");
    return (__ffs(int(mask)) - 1) & 31;
}

/* By all threads of a block, both aligned to 8 and in whole words. */
__device__ inline void copy_words(void *target, const void *source, size_t bytes)
{
#pragma unroll 1
    for (size_t word = Thread::rank(); word < bytes / 8; word += Thread::count()) {
        static_cast<uint64_t *>(target)[word] = static_cast<const uint64_t *>(source)[word];
    }
}

template <class Where> class DeviceLoop
{
  public:
    /* Calls `callback(loop)` at a later point. */
    template <class Callback> __device__ void postTask(const Callback &callback GLOOP_WHERE)
    {
        __builtin_assume(__isShared(this));
        const Run<DeviceLoop> run = &run_task<DeviceLoop, Callback>;
        if (Thread::is_first()) { fill(take(true, true), run, callback); }
        verify(run, callback GLOOP_HERE);
    }

    /* For long loops: false means that it is not time to stop, and nothing was kept. True: the callback was posted, and
     * the caller returns. That is when the block shall give way, and when other callbacks of it could run. */
    template <class Callback> __device__ bool postTaskIfNecessary(const Callback &callback GLOOP_WHERE)
    {
        if (!__syncthreads_or(Thread::is_first() && is_time(1) && look())) { return false; }
        postTask(callback GLOOP_HERE);
        return true;
    }

    /* Each thread gets back what it captured itself. Options::per_thread_bytes says how much that may be. */
    template <class Callback> __device__ void postTaskPerThread(const Callback &callback)
    {
        if (sizeof(Callback) > launch_->own_bytes) {
            fail(launch_->failure, "postTaskPerThread captures more than Options::per_thread_bytes");
        }
        const uint32_t own = tell([&] {
            if (place_.own_free == 0) {
                fail(launch_->failure, "more than two callbacks of postTaskPerThread wait in a block");
            }
            const unsigned number = take(true, true), found = __ffs(int(place_.own_free)) - 1;
            place_.own_free &= ~(1u << found);
            slot_at(number).callback = reinterpret_cast<void *>(&run_own<DeviceLoop, Callback>);
            slot_at(number).own = found;
            return found;
        });
        put(own_place(own), callback);
    }

    /* Ends the launch: no block begins a callback any more, and requests that are out are dropped. */
    __device__ void forceExit()
    {
        if (Thread::is_first()) { give(order_exit); }
    }

    /* Names shared memory that is saved when this block gives way, and brought back: until the logical block ends, or
     * until named again with 0 bytes. Address and size are multiples of 8. */
    __device__ void keep(void *pointer, size_t bytes);

    __device__ uint3 logicalBlockIdx() const
    {
        const uint3 grid = launch_->logical;
        const uint32_t row = logical_ / grid.x;
        return {logical_ % grid.x, row % grid.y, row / grid.y};
    }

    __device__ uint3 logicalGridDim() const { return launch_->logical; }

    /* For gloop.cuh. The line's answer reaches `callback(loop, result)`. */
    template <class Callback>
    __device__ void request(Line line, const char *name, const Callback &callback GLOOP_WHERE);

    /* For callback.cuh, as the next one. */
    __device__ Slot &slot_at(unsigned number)
    {
        return *with_slot(number, [](Slot &slot) { return &slot; });
    }

    /* The same in two branches: accesses by an address that may lie in either memory take several times as long. */
    template <class Use> __device__ auto with_slot(unsigned number, const Use &use)
    {
        if constexpr (is_near) {
            if (number < 2) {
                __builtin_assume(__isShared(this));
                asm volatile("");
                return use(near_[number]);
            }
        }
        return use(context_->slots[number]);
    }

    /* Where this thread's closure of postTaskPerThread lies, which is copied at once. */
    __device__ const unsigned char *leave_own_place(unsigned own)
    {
        if (Thread::is_first()) { place_.own_free |= 1u << own; }
        return own_place(own);
    }

    /* The kernel: from here to where the block has finished, or has to leave. */
    template <class Entry> __device__ void run(const Launch &launch, const Entry &entry);

  private:
    static constexpr bool is_near = std::is_same_v<Where, Shared>;
    static constexpr uint32_t order_leave = 1, order_exit = 2, order_fail = 4;

    __device__ unsigned char *own_place(unsigned own) const
    {
        const size_t place = (size_t(blockIdx.x) * own_places + own) * Thread::count();
        return launch_->own + (place + Thread::rank()) * launch_->own_bytes;
    }

    __device__ uint64_t page_at(uint32_t page, uint64_t address) const /* the two lie alike in their 16 bytes */
    {
        const uint64_t at = (2 * blockIdx.x + (page == page_out)) * (launch_->page_bytes + 16) + address % 16;
        return reinterpret_cast<uint64_t>(launch_->pages + at);
    }

    /* By the first thread. Tasks take slots from below, where they are near; requests, which are long, from above. */
    __device__ unsigned take(bool is_low, bool is_ready)
    {
        const uint32_t free = place_.free, ready = place_.ready;
        const unsigned number = is_low ? lowest(free) : (31 - __clz(int(free))) & 31, bit = 1u << number;
        if (free == 0) { watch_.points_left = 1, watch_.orders = order_fail; } /* for the next point, without a call */
        place_.free = free & ~bit, place_.ready = is_ready ? ready | bit : ready;
        return number;
    }

    __device__ void give(uint32_t order) { watch_.orders |= order, watch_.points_left = 1; /* for the next point */ }

    template <class Callback> __device__ unsigned fill(unsigned number, Run<DeviceLoop> run, const Callback &callback)
    {
        with_slot(number, [&](Slot &slot) {
            slot.callback = reinterpret_cast<void *>(run);
            put(slot.closure, callback);
        });
#ifdef GLOOP_CHECK
        told_ = number;
#endif
        return number;
    }

    /* By all threads, once the first one has filled a slot. */
    template <class Callback> __device__ void verify(Run<DeviceLoop> run, const Callback &callback GLOOP_WHERE_AGAIN)
    {
#ifdef GLOOP_CHECK
        __syncthreads();
        compare(launch_->failure, slot_at(told_), reinterpret_cast<void *>(run), callback GLOOP_HERE);
        __syncthreads();
#endif
    }

    /* By all threads: what the first one finds, for everybody. */
    template <class Find> __device__ uint32_t tell(const Find &find)
    {
        if (Thread::is_first()) { told_ = find(); }
        __syncthreads();
        const uint32_t told = told_;
        __syncthreads();
        return told;
    }

    /* By the first thread, as all that follow but the last three. */
    __device__ bool is_time(unsigned nr_points)
    {
        const Watch watch = watch_;
        watch_.points_left -= nr_points;
        return (watch.points_left == nr_points) | (uint32_t(clock64()) - watch.looked > watch.look_cycles);
    }

    __device__ const volatile Control *control() const { return launch_->control; }
    __device__ bool is_told_to_leave() const
    { return *static_cast<const volatile uint32_t *>(launch_->give_way) | control()->stop; }
    __device__ Step<DeviceLoop> next_step(bool is_looking);
    __device__ Step<DeviceLoop> rare_step(bool is_looking);
    __device__ bool look();
    __device__ void wait();
    __device__ bool take_answers();
    __device__ void collect(unsigned number);
    __device__ bool begin(const Launch &launch);
    __device__ void leave(Left left);
    __device__ void move_kept(bool is_saved);
    Step<DeviceLoop> steps_[2]; /* in turn, so that one barrier is enough */
    Place place_;
    Watch watch_;
    const Launch *launch_;
    Context *context_;
    uint32_t logical_;
    uint32_t told_;                                   /* in a callback, between two barriers */
    std::conditional_t<is_near, Slot[2], char> near_; /* or nothing */
};
} // namespace gloop::detail

namespace gloop
{
template <class Where = Shared> using DeviceLoop = detail::DeviceLoop<Where>;
}
