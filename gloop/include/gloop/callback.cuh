/* What a callback may be, and how one lies in a slot: a function pointer and the closure's bytes. */
#ifndef GLOOP_CALLBACK_CUH
#define GLOOP_CALLBACK_CUH

#include <new>
#include <type_traits>

#include "wire.cuh"

namespace gloop
{
namespace detail
{

template <class Callback> __device__ __forceinline__ void check_callback()
{
    static_assert(std::is_trivially_copyable<Callback>::value,
                  "a callback captures only what may be copied byte by byte");
    static_assert(sizeof(Callback) <= closure_bytes,
                  "a callback captures at most 384 bytes: capture a pointer to more");
    static_assert(alignof(Callback) <= alignof(Slot),
                  "a callback captures nothing that is aligned to more than 16 bytes");
}

/*
 * What a slot points at, by kind. Each thread copies the closure, so that its values live in registers while it runs.
 * A pointer taken on the device is good for all launches of the same module, and a suspended block goes on in the same
 * kernel.
 */
template <class Loop> using Entry = void (*)(Loop *, const Slot &);

template <class Loop, class Callback> __device__ void run_task(Loop *loop, const Slot &slot)
{
    const Callback callback = *reinterpret_cast<const Callback *>(slot.closure);
    callback(loop);
}

template <class Loop, class Callback> __device__ void run_answer(Loop *loop, const Slot &slot)
{
    const std::int64_t result = slot.result;
    const Callback callback = *reinterpret_cast<const Callback *>(slot.closure);
    callback(loop, result);
}

template <class Loop, class Callback> __device__ void run_own(Loop *loop, const Slot &slot)
{
    const Callback callback = *reinterpret_cast<const Callback *>(loop->leave_own_place(slot.own));
    callback(loop);
}

template <class Callback> __device__ __forceinline__ void put(void *place, const Callback &callback)
{
    new (place) Callback(callback);
}

} // namespace detail
} // namespace gloop

#endif
