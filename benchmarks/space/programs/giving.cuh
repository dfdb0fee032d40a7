/*
 * How a persistent launch takes numbers and gives places up. Blocks take the numbers of logical blocks from a counter.
 * The split word says how many of them may stay: k fewer on each of the first n multiprocessors. live[] counts who is
 * on each. A block enters and leaves it by compare and swap, so that exactly as many go as must.
 *
 * Wrong where a block may be moved to another multiprocessor while it runs (a debugger, a preempted context): here it
 * is asked once.
 */
#ifndef BENCHMARKS_SPACE_GIVING_CUH
#define BENCHMARKS_SPACE_GIVING_CUH

enum { THREADS = 256, MOST_MULTIPROCESSORS = 1024, MOST_EACH = 8 };

/* What a persistent launch is told. A launch may end before its numbers do, and the next one go on with the same
 * counter. */
struct giving {
    unsigned long long *counter, limit;
    unsigned *live;              /* blocks on each multiprocessor */
    const volatile unsigned *at; /* the split word: n in the low 16 bits, k in the high ones */
    unsigned most_each, nr_blocks;
};

static const unsigned long long NO_NUMBER = ~0ull;

static __device__ unsigned multiprocessor(void)
{
    unsigned found;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(found));
    return found;
}

static __device__ unsigned most_live(const struct giving &giving, unsigned place)
{
    unsigned split = *giving.at, k = split >> 16;
    if (place >= (split & 0xffff)) {
        return giving.most_each;
    }
    return k < giving.most_each ? giving.most_each - k : 0;
}

static __device__ bool enters(const struct giving &giving, unsigned place)
{
    volatile unsigned *live = giving.live + place;
    for (;;) {
        unsigned now = *live;
        if (now >= most_live(giving, place)) {
            return false;
        }
        if (atomicCAS(giving.live + place, now, now + 1) == now) {
            return true;
        }
    }
}

static __device__ bool leaves(const struct giving &giving, unsigned place)
{
    volatile unsigned *live = giving.live + place;
    for (;;) {
        unsigned now = *live;
        if (now <= most_live(giving, place)) {
            return false;
        }
        if (atomicCAS(giving.live + place, now, now - 1) == now) {
            return true;
        }
    }
}

/* For a block's first thread: the next number, or none, and then the block is no longer counted. */
static __device__ unsigned long long next_number(const struct giving &giving, unsigned place, bool is_first)
{
    if (is_first ? !enters(giving, place) : leaves(giving, place)) {
        return NO_NUMBER;
    }
    unsigned long long number = atomicAdd(giving.counter, 1);
    if (number < giving.limit) {
        return number;
    }
    atomicSub(giving.live + place, 1);
    return NO_NUMBER;
}

template <class View> __global__ void __launch_bounds__(THREADS) plain(View view, unsigned phase)
{
    view.block(blockIdx.x, phase);
}

/* The first phase over and over. */
template <class View> __global__ void __launch_bounds__(THREADS) persistent(View view, struct giving giving)
{
    __shared__ unsigned long long number;
    for (bool is_first = true;; is_first = false) {
        if (threadIdx.x == 0) {
            number = next_number(giving, multiprocessor(), is_first);
        }
        __syncthreads();
        if (number == NO_NUMBER) {
            return;
        }
        view.block((unsigned)(number % giving.nr_blocks), 0);
        __syncthreads();
    }
}

#endif
