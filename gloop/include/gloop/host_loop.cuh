/* The host loop: launches a kernel of event loops, and launches it again for as long as blocks have left with work. In
 * between, when all they wait for is an answer, no kernel is on the device. */
#pragma once

#include "request.cuh"
#include "run.cuh"
#include "service.cuh"

namespace gloop
{
namespace detail
{
/* How many blocks of a kernel are on the device at once, and the shared memory of one, with what the launch adds. */
struct Fit {
    unsigned nr_blocks;
    size_t shared_bytes;
};

inline int attribute_of(cudaDeviceAttr attribute, int device)
{
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device), "an attribute of the device");
    return value;
}

inline Fit fit_of(const void *kernel, int device, dim3 blocks, dim3 threads, size_t shared_bytes)
{
    const uint64_t nr_logical = uint64_t(blocks.x) * blocks.y * blocks.z;
    const uint64_t nr_threads = uint64_t(threads.x) * threads.y * threads.z;
    const uint64_t most_threads = attribute_of(cudaDevAttrMaxThreadsPerBlock, device);
    if (nr_logical == 0 || nr_logical >> 31 || nr_threads == 0 || nr_threads > most_threads) {
        throw Error::of("a launch of ", nr_logical, " blocks of ", nr_threads, " threads: give it 1 to ", ~0u >> 1,
                        " blocks, of 1 to ", most_threads, " threads");
    }
    cudaFuncAttributes of_kernel;
    check(cudaFuncGetAttributes(&of_kernel, kernel), "a kernel, left out by nvcc where it captures [name = value]");
    const size_t all_shared = of_kernel.sharedSizeBytes + shared_bytes;
    const size_t most_shared = attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (all_shared > most_shared) {
        throw Error::of(all_shared, " bytes of shared memory, ", of_kernel.sharedSizeBytes,
                        " of them the kernel's own: a block of this device has at most ", most_shared);
    }
    if (shared_bytes > size_t(of_kernel.maxDynamicSharedSizeBytes)) {
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
              "dynamic shared memory");
    }
    int nr_each = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_each, kernel, int(nr_threads), shared_bytes), "occupancy");
    if (nr_each == 0 || nr_threads > uint64_t(of_kernel.maxThreadsPerBlock)) { /* occupancy leaves bounds out */
        throw Error::of(nr_threads, " threads, ", of_kernel.numRegs, " registers each and ", all_shared,
                        " bytes of shared ", "memory do not fit: this kernel is for at most ",
                        of_kernel.maxThreadsPerBlock, " threads");
    }
    const uint64_t nr_resident = uint64_t(nr_each) * attribute_of(cudaDevAttrMultiProcessorCount, device);
    return {unsigned(std::min(nr_logical, nr_resident)), all_shared};
}

template <class Where, class Bound, class Entry>
__global__ void __launch_bounds__(Bound::threads, Bound::blocks)
    event_loops(const __grid_constant__ Launch launch, const __grid_constant__ Entry entry)
{
    __shared__ DeviceLoop<Where> of_block;
    DeviceLoop<Where> *loop = &of_block;
    asm volatile("" : "+l"(loop)); /* an address to keep, not to make anew at each point */
    loop->run(launch, entry);
}

/* All that a host loop has, so that a forked child may leave it alone. */
struct Parts {
    explicit Parts(const Options &options, int device)
        : cycles_per_us(std::max(1000, attribute_of(cudaDevAttrClockRate, device) / 1000)), word(word_of(device)),
          service(options, device)
    {
        check(cudaStreamCreate(&stream), "a stream");
        check(cudaEventCreateWithFlags(&ended, cudaEventBlockingSync | cudaEventDisableTiming), "an event");
    }
    ~Parts()
    {
        cudaEventDestroy(ended);
        cudaStreamDestroy(stream);
    }

    const uint64_t cycles_per_us; /* asked once: drivers read it across the bus, longer than a kernel may take */
    Memory word;
    Service service;
    cudaStream_t stream = nullptr;
    cudaEvent_t ended = nullptr;
    Array control{false}, contexts{false}, kept{false}, own{false};
    Array failure{true}, asked{true}, answers{true}, states{true}, lines{true}, names{true}, pages{true};
    bool is_clean = false; /* what has to be zero is, as most launches leave it */
};
} // namespace detail

class HostLoop
{
  public:
    explicit HostLoop(const Options &options = Options()) : options_(options), process_(getpid())
    {
        detail::check(cudaGetDevice(&device_), "the device");
        parts_ = std::make_unique<detail::Parts>(options, device_);
    }

    ~HostLoop()
    {
        if (getpid() != process_) { (void)parts_.release(); /* threads and contexts are not a child's */ }
    }

    /* Calls `entry(loop)` in each logical block, and returns when all callbacks have run. `Where` is the entry's:
     * DeviceLoop<Where>. Throws Error for what does not fit, and for what ended the kernel. */
    template <class Where = Shared, class Bound = Bounds<>, class Entry>
    void launch(dim3 blocks, dim3 threads, const Entry &entry)
    { launchWithSharedMemory<Where, Bound>(blocks, threads, 0, entry); }

    template <class Where = Shared, class Bound = Bounds<>, class Entry>
    void launchWithSharedMemory(dim3 blocks, dim3 threads, size_t bytes, const Entry &entry)
    {
        if (getpid() != process_) {
            throw Error::of("a host loop of process ", process_, " does not work in its child ", getpid(),
                            ": CUDA does not survive fork; make one there before CUDA is used here");
        }
        const std::lock_guard one(launching_);
        int before = 0; /* a new thread has the first device */
        detail::check(cudaGetDevice(&before), "the device"), detail::check(cudaSetDevice(device_), "the device");
        const std::shared_ptr<int> goes_back(&before, [](const int *device) { cudaSetDevice(*device); });
        const auto kernel = &detail::event_loops<Where, Bound, Entry>;
        const detail::Fit fit = detail::fit_of(reinterpret_cast<const void *>(kernel), device_, blocks, threads, bytes);
        const unsigned long long nr_requests = parts_->service.nr_requests();
        detail::Launch launch = prepare(fit, blocks, threads);
        parts_->service.begin(launch, fit.nr_blocks);
        const std::shared_ptr<detail::Service> ends(&parts_->service, [](auto *service) { service->finish(); });
        for (bool is_left = true; is_left; launch.is_resumed = 1) {
            if (launch.is_resumed) { clear(launch.control, offsetof(detail::Control, next)); }
            nr_kernels_++;
            void *arguments[] = {&launch, const_cast<Entry *>(&entry)};
            const auto begun = cudaLaunchKernel(kernel, fit.nr_blocks, threads, arguments, bytes, parts_->stream);
            parts_->service.set_running(true); /* to wake a thread takes longer than the launch */
            is_left = is_left_after_kernel(launch, fit.nr_blocks, begun);
        }
        parts_->is_clean = parts_->is_clean && parts_->service.nr_requests() == nr_requests;
    }

    /* May be asked from any thread. */
    Statistics statistics() const
    { return {nr_kernels_, parts_->service.nr_requests(), parts_->service.nr_hits(), parts_->service.is_running()}; }

  private:
    static constexpr unsigned look_us = 20, spin_us = 1000; /* for a kernel's end: to sleep costs 20 us */
    static constexpr size_t pages_bytes = 64 * 1024 * 1024; /* pinned, at most: of many blocks pages are smaller */
    detail::Launch prepare(const detail::Fit &fit, dim3 blocks, dim3 threads)
    {
        const size_t nr_blocks = fit.nr_blocks, nr_slots = nr_blocks * detail::slots_per_block;
        detail::Launch launch = {};
        launch.kept_bytes = (fit.shared_bytes + 7) / 8 * 8;
        launch.page_bytes = std::min(detail::page_bytes, pages_bytes / (2 * nr_blocks) / 4096 * 4096);
        launch.own_bytes = (options_.per_thread_bytes + 15) / 16 * 16;
        detail::Parts &parts = *parts_;
        parts.contexts.make(launch.contexts, nr_blocks);
        parts.kept.make(launch.kept, nr_blocks * launch.kept_bytes);
        parts.own.make(launch.own,
                       nr_blocks * detail::own_places * threads.x * threads.y * threads.z * launch.own_bytes);
        parts.lines.make(launch.lines, nr_slots);
        parts.names.make(launch.names, nr_slots * detail::name_bytes);
        parts.pages.make(launch.pages, nr_blocks * 2 * (launch.page_bytes + 16));
        if (parts.control.make(launch.control, 1) | parts.failure.make(launch.failure, 1) |
            parts.asked.make(launch.asked, nr_blocks) | parts.answers.make(launch.answers, nr_blocks) |
            parts.states.make(launch.states, nr_blocks) | !parts.is_clean) {
            clear(launch.control, sizeof(*launch.control));
            parts.failure.clear(), parts.asked.clear(), parts.answers.clear(), parts.states.clear();
        }
        parts.is_clean = false;
        launch.give_way = reinterpret_cast<const uint32_t *>(parts_->word.get());
        launch.look_cycles = parts_->cycles_per_us * look_us;
        launch.idle_cycles = parts_->cycles_per_us * options_.idle_us;
        launch.logical = {blocks.x, blocks.y, blocks.z};
        launch.points = options_.points;
        return launch;
    }

    void clear(detail::Control *control, size_t bytes)
    { detail::check(cudaMemsetAsync(control, 0, bytes, parts_->stream), "the control of a kernel"); }

    bool is_left_after_kernel(const detail::Launch &launch, unsigned nr_blocks, cudaError_t result)
    {
        if (result == cudaSuccess) { result = cudaEventRecord(parts_->ended, parts_->stream); }
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
        while (cudaEventQuery(parts_->ended) == cudaErrorNotReady && std::chrono::steady_clock::now() < until) {}
        if (result == cudaSuccess) { result = cudaEventSynchronize(parts_->ended); }
        parts_->service.set_running(false);
        const detail::Failure &failure = *launch.failure;
        if (failure.is_set && failure.line) { throw Error::of(failure.text, ", ", failure.file, ":", failure.line); }
        if (failure.is_set) { throw Error::of(failure.text); }
        detail::check(result, "a kernel");
        bool is_left = false, is_forced = false;
        for (const auto *state = launch.states; state < launch.states + nr_blocks; state++) {
            is_left |= state->left != detail::Left::finished, is_forced |= state->left == detail::Left::forced;
        }
        parts_->is_clean = !is_left;
        if (is_left) { parts_->service.wait_for_answer(is_forced); }
        return is_left && !is_forced;
    }

    Options options_;
    pid_t process_;
    int device_ = 0;
    std::mutex launching_;
    std::unique_ptr<detail::Parts> parts_;
    std::atomic<unsigned long long> nr_kernels_{0};
};
} // namespace gloop
