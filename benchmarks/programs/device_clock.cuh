/* The device's clock, for kernels that last a given time. */
#ifndef BENCHMARKS_DEVICE_CLOCK_CUH
#define BENCHMARKS_DEVICE_CLOCK_CUH

static __global__ void spin(unsigned long long ns)
{
    unsigned long long begin_ns, now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin_ns));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    } while (now_ns - begin_ns < ns);
}

#endif
