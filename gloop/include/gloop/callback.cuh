/* What a callback may be, how one lies in a slot, and how a block ends the kernel with a message. */
#pragma once

#include <new>
#include <type_traits>

#include "wire.cuh"

#ifdef GLOOP_CHECK /* who calls, for what is told of a mistake */
#define GLOOP_WHERE       , const char *caller = __builtin_FILE(), int caller_line = __builtin_LINE()
#define GLOOP_WHERE_AGAIN , const char *caller, int caller_line
#define GLOOP_HERE        , caller, caller_line
#else
#define GLOOP_WHERE
#define GLOOP_WHERE_AGAIN
#define GLOOP_HERE
#endif

namespace gloop::detail
{
__device__ inline void copy_text(char *target, size_t bytes, const char *text)
{
    size_t length = 0;
#pragma unroll 1 /* registers here are registers of every kernel */
    for (; length + 1 < bytes && text[length]; length++) { target[length] = text[length]; }
    target[length] = 0;
}

/* By any thread: one that ends here has written all of it before, so it does not matter who else does. */
[[noreturn]] __device__ inline void fail(Failure *failure, const char *text, const char *file = "", int line = 0)
{
    copy_text(failure->text, sizeof(failure->text), text);
    copy_text(failure->file, sizeof(failure->file), file);
    failure->line = line;
    __threadfence_system();
    *static_cast<volatile uint32_t *>(&failure->is_set) = 1;
    __threadfence_system();
    __trap();
    __builtin_unreachable();
}

template <class Callback> __device__ void put(unsigned char *place, const Callback &callback)
{
    static_assert(std::is_trivially_copyable_v<Callback>, "a callback captures only what may be copied byte by byte");
    static_assert(sizeof(Callback) <= closure_bytes,
                  "a callback captures at most 384 bytes: capture a pointer to more");
    static_assert(alignof(Callback) <= 16, "a callback captures nothing that is aligned to more than 16 bytes");
#ifdef GLOOP_CHECK
    memset(place, 0, sizeof(Callback));
#endif
    new (place) Callback(callback);
}

/* What a slot points at, by kind. Each thread copies the closure, so that its values live in registers while it runs. A
 * pointer taken on the device is good for all launches of a module, and a block that left goes on in the same kernel.
 */
template <class Loop> using Run = void (*)(Loop *, unsigned slot);

template <class Loop, class Callback> __device__ void run_task(Loop *loop, unsigned number)
{
    const Callback callback = loop->with_slot(number, [](Slot &slot) {
        const Callback copy = *reinterpret_cast<const Callback *>(slot.closure);
        asm volatile("" ::: "memory"); /* each branch has loads of its own */
        return copy;
    });
    callback(loop);
}

template <class Loop, class Callback> __device__ void run_answer(Loop *loop, unsigned slot)
{
    const int64_t result = loop->slot_at(slot).result;
    const Callback callback = *reinterpret_cast<const Callback *>(loop->slot_at(slot).closure);
    callback(loop, result);
}

template <class Loop, class Callback> __device__ void run_own(Loop *loop, unsigned slot)
{
    const auto *place = loop->leave_own_place(loop->slot_at(slot).own);
    const Callback callback = *reinterpret_cast<const Callback *>(place);
    callback(loop);
}

#ifdef GLOOP_CHECK
/* By all threads, once the first one stored what it posts. Bytes between values are zero on both sides. */
template <class Callback>
__device__ void compare(Failure *failure, const Slot &slot, void *run, const Callback &callback GLOOP_WHERE_AGAIN)
{
    alignas(16) unsigned char bytes[sizeof(Callback)];
    put(bytes, callback);
    bool is_same = slot.callback == run;
    for (size_t byte = 0; is_same && byte < sizeof(bytes); byte++) { is_same = bytes[byte] == slot.closure[byte]; }
    if (!is_same) {
        fail(failure, "threads of a block post different callbacks, or capture different values" GLOOP_HERE);
    }
}
#endif
} // namespace gloop::detail
