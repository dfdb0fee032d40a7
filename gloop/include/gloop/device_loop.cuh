/*
 * The event loop of a block: it takes callbacks out of slots and calls them, one after another, all threads together.
 *
 * Every thread has a copy of the masks of slots. They stay the same since all threads make the same calls with the same
 * arguments, which is what costs a point only one barrier: it shows the closure that the first thread wrote, frees the
 * slot of the callback that has ended, and tells everybody whether the first thread's clock says that it is time to
 * look. Whatever only the first thread can know (the word, answers, the next logical block) travels through `tell`.
 *
 * Wrong when: a program calls from some threads of a block only. -DGLOOP_CHECK finds what differs, not who is missing.
 */
#pragma once

#include <cuda/atomic>

#include "callback.cuh"

namespace gloop::detail
{
/* What all threads of a block see, in shared memory. */
template <class Where> struct Slots {
    uint64_t told[2];
};
template <> struct Slots<Shared> {
    uint64_t told[2];
    Slot near[2];
};

struct Thread {
    static __device__ bool is_first() { return (threadIdx.x | threadIdx.y | threadIdx.z) == 0; }
    static __device__ unsigned rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static __device__ unsigned count() { return blockDim.x * blockDim.y * blockDim.z; }
};

/* By all threads of a block, both aligned to 8 and in whole words. */
__device__ inline void copy_words(void *target, const void *source, size_t bytes)
{
    for (size_t word = Thread::rank(); word < bytes / 8; word += Thread::count()) {
        static_cast<uint64_t *>(target)[word] = static_cast<const uint64_t *>(source)[word];
    }
}

template <class Where> class DeviceLoop
{
  public:
    /* Calls `callback(loop)` at a later point. */
    template <class Callback> __device__ void postTask(const Callback &callback GLOOP_WHERE)
    { post(callback GLOOP_HERE); }

    /*
     * For long loops: false means that it is not time to stop, and nothing was kept. True: the callback was posted, and
     * the caller returns. That is when the block shall give way, and when other callbacks of it could run.
     */
    template <class Callback> __device__ bool postTaskIfNecessary(const Callback &callback GLOOP_WHERE)
    {
        if (!__syncthreads_or(is_time())) { return false; }
        look();
        if (orders_ == 0 && place_.ready == 0) { return false; }
        post(callback GLOOP_HERE);
        return true;
    }

    /* Each thread gets back what it captured itself. Options::per_thread_bytes says how much that may be. */
    template <class Callback> __device__ void postTaskPerThread(const Callback &callback)
    {
        if (sizeof(Callback) > launch_->own_bytes) {
            fail_all("postTaskPerThread captures more than Options::per_thread_bytes");
        }
        if (place_.own_free == 0) { fail_all("more than two callbacks of postTaskPerThread wait in a block"); }
        const unsigned own = __ffs(int(place_.own_free)) - 1;
        place_.own_free &= ~(1u << own);
        const unsigned number = take_low();
        put(own_place(own), callback);
        if (Thread::is_first()) {
            Slot &slot = slot_at(number);
            slot.callback = reinterpret_cast<void *>(&run_own<DeviceLoop, Callback>);
            slot.own = own;
        }
        place_.ready |= 1u << number;
    }

    /* Ends the launch: no block begins a callback any more, and requests that are out are dropped. */
    __device__ void forceExit() { orders_ |= order_exit; }

    /*
     * Names shared memory that is saved when this block gives way, and brought back: until the logical block ends, or
     * until named again with 0 bytes. Address and size are multiples of 8.
     */
    __device__ void keep(void *pointer, size_t bytes);

    __device__ uint3 logicalBlockIdx() const
    {
        const uint32_t *grid = launch_->logical;
        const uint32_t row = place_.logical / grid[0];
        return {place_.logical % grid[0], row % grid[1], row / grid[1]};
    }

    __device__ uint3 logicalGridDim() const { return {launch_->logical[0], launch_->logical[1], launch_->logical[2]}; }

    /* For calls.cuh. The line's answer reaches `callback(loop, result)`. */
    template <class Callback>
    __device__ void request(Line line, const char *name, const Callback &callback GLOOP_WHERE);

    /* For callback.cuh: where this thread's closure of postTaskPerThread lies, which is copied at once. */
    __device__ const unsigned char *leave_own_place(unsigned own)
    {
        place_.own_free |= 1u << own;
        return own_place(own);
    }

    __device__ DeviceLoop(const Launch &launch, Slots<Where> &slots)
        : launch_(&launch), slots_(&slots), context_(&launch.contexts[blockIdx.x])
    {
    }

    /* The kernel: from here to where the block has finished, or has to leave. */
    template <class Entry> __device__ void run(const Entry &entry);

  private:
    static constexpr uint32_t order_leave = 1, order_exit = 2;

    __device__ unsigned char *own_place(unsigned own) const
    {
        const size_t place = (size_t(blockIdx.x) * own_places + own) * Thread::count();
        return launch_->own + (place + Thread::rank()) * launch_->own_bytes;
    }

    __device__ unsigned char *page_at(uint32_t page) const
    { return launch_->pages + (2 * blockIdx.x + (page == page_out)) * launch_->page_bytes; }

    __device__ Slot &slot_at(unsigned number) const
    {
        if constexpr (std::is_same_v<Where, Shared>) {
            return number < 2 ? slots_->near[number] : context_->slots[number];
        }
        return context_->slots[number];
    }

    /* Tasks take slots from below, where they are near; requests, which are long anyway, from above. */
    __device__ unsigned take_low() { return take(__ffs(int(place_.free)) - 1); }
    __device__ unsigned take(int number)
    {
        if (place_.free == 0) { fail_all("a block has 32 callbacks that wait; there is no slot for another one"); }
        place_.free &= ~(1u << number);
        return number;
    }

    template <class Callback>
    __device__ void store(unsigned number, Run<DeviceLoop> run, const Callback &callback GLOOP_WHERE_AGAIN)
    {
        Slot &slot = slot_at(number);
        if (Thread::is_first()) {
            slot.callback = reinterpret_cast<void *>(run);
            put(slot.closure, callback);
        }
#ifdef GLOOP_CHECK
        compare(launch_->failure, slot, reinterpret_cast<void *>(run), callback GLOOP_HERE);
#endif
    }

    template <class Callback> __device__ void post(const Callback &callback GLOOP_WHERE_AGAIN)
    {
        const unsigned number = take_low();
        store(number, &run_task<DeviceLoop, Callback>, callback GLOOP_HERE);
        place_.ready |= 1u << number;
    }

    /* By all threads: the first one's value for everybody. Two places in turn, so that one barrier is enough. */
    __device__ uint64_t tell(uint64_t value)
    {
        uint64_t &told = slots_->told[turn_ ^= 1];
        if (Thread::is_first()) { told = value; }
        __syncthreads();
        return told;
    }

    __device__ void fail_all(const char *text)
    {
        if (Thread::is_first()) { fail(launch_->failure, text); }
        __syncthreads();
    }

    /* Whether the first thread wants all to look; the others do not know. No two clocks are ever compared. */
    __device__ bool is_time()
    { return Thread::is_first() && (--points_left_ == 0 || uint64_t(clock64()) - looked_ > launch_->look_cycles); }

    __device__ const volatile Control *control() const { return launch_->control; }
    __device__ bool is_told_to_leave() const
    { return *static_cast<const volatile uint32_t *>(launch_->give_way) | control()->stop; }

    __device__ void begin_fresh();
    __device__ bool begin_again();
    __device__ void call_next();
    __device__ bool begin_logical_block();
    __device__ void look();
    __device__ void wait();
    __device__ bool is_idle_end(bool *is_counted, uint64_t since);
    __device__ void leave(Left left);
    __device__ void move_kept(bool is_saved);
    __device__ uint64_t answers_of_now();
    __device__ void collect(uint64_t told);

    const Launch *launch_;
    Slots<Where> *slots_;
    Context *context_;
    Place place_;
    uint32_t orders_ = 0;  /* why to leave, the same in all threads */
    uint32_t running_ = 0; /* the slot whose callback runs, as a bit */
    uint32_t turn_ = 0;
    uint32_t points_left_ = 0;
    uint64_t looked_ = 0; /* the first thread's clock */
};
} // namespace gloop::detail

namespace gloop
{
template <class Where = Shared> using DeviceLoop = detail::DeviceLoop<Where>;
}
