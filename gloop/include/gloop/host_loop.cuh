/*
 * The host loop: launches a kernel of event loops, and launches it again for as long as blocks have left with work. In
 * between, when all they wait for is an answer, no kernel is on the device.
 */
#pragma once

#include "fit.cuh"
#include "request.cuh"
#include "run.cuh"
#include "service.cuh"
#include "word.cuh"

namespace gloop
{
namespace detail
{

template <class Where, class Entry>
__global__ void event_loops(const __grid_constant__ Launch launch, const __grid_constant__ Entry entry)
{
    __shared__ Slots<Where> slots;
    DeviceLoop<Where> loop(launch, slots);
    loop.run(entry);
}

/* All that a host loop has, so that a forked child may leave it alone. */
struct Parts {
    explicit Parts(const Options &options, int device)
        : cycles_per_us(cycles_per_us_of(device)), word(word_of(device)), service(options, device)
    {
        check(cudaStreamCreate(&stream), "a stream");
        check(cudaEventCreateWithFlags(&ended, cudaEventBlockingSync | cudaEventDisableTiming), "an event");
    }
    ~Parts()
    {
        cudaEventDestroy(ended);
        cudaStreamDestroy(stream);
    }

    const uint64_t cycles_per_us;
    std::shared_ptr<uint32_t> word;
    Service service;
    cudaStream_t stream = nullptr;
    cudaEvent_t ended = nullptr;
    Memory on_device, pinned; /* of launches; one serves again where it is large enough */
    size_t on_device_bytes = 0, pinned_bytes = 0;
};

/* Cuts arrays out of memory that is made when what is there is too small. */
template <class Cut> void make_arrays(Memory &memory, size_t &bytes, bool is_pinned, const Cut &cut)
{
    Cutter counted;
    cut(counted);
    if (counted.bytes > bytes) {
        memory.reset();
        bytes = 0;
        memory = make_memory(counted.bytes, is_pinned);
        bytes = counted.bytes;
    }
    Cutter cutter = {memory.get()};
    cut(cutter);
}
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

    /*
     * Calls `entry(loop)` in each logical block, and returns when all callbacks have run. `Where` is the entry's:
     * DeviceLoop<Where>. Throws Error for what does not fit, and for what ended the kernel.
     */
    template <class Where = Shared, class Entry> void launch(dim3 blocks, dim3 threads, const Entry &entry)
    { launchWithSharedMemory<Where>(blocks, threads, 0, entry); }

    template <class Where = Shared, class Entry>
    void launchWithSharedMemory(dim3 blocks, dim3 threads, size_t bytes, const Entry &entry)
    {
        if (getpid() != process_) {
            throw Error("gloop: a host loop of process " + std::to_string(process_) + " does not work in its child " +
                        std::to_string(getpid()) +
                        ": CUDA does not survive fork; make one there before CUDA is used here");
        }
        const auto kernel = &detail::event_loops<Where, Entry>;
        const detail::Fit fit = detail::fit_of(reinterpret_cast<const void *>(kernel), device_, blocks, threads, bytes);
        detail::Launch launch = prepare(fit, blocks, threads);
        parts_->service.begin(launch, fit.nr_blocks);
        try {
            for (bool is_left = true; is_left; launch.is_resumed = 1) {
                begin_kernel(launch);
                kernel<<<fit.nr_blocks, threads, bytes, parts_->stream>>>(launch, entry);
                is_left = is_left_after_kernel(launch, fit.nr_blocks);
            }
        } catch (...) {
            end();
            throw;
        }
        end();
    }

    /* May be asked from any thread. */
    Statistics statistics() const
    {
        const detail::Service &service = parts_->service;
        return {nr_kernels_, service.nr_requests(), service.nr_hits(), service.is_running()};
    }

  private:
    static constexpr unsigned look_us = 20;
    static constexpr size_t pages_bytes = 64 * 1024 * 1024; /* pinned, at most: of many blocks pages are smaller */

    detail::Launch prepare(const detail::Fit &fit, dim3 blocks, dim3 threads)
    {
        const size_t nr_blocks = fit.nr_blocks, nr_slots = nr_blocks * detail::slots_per_block;
        detail::Launch launch = {};
        launch.kept_bytes = (fit.shared_bytes + 7) / 8 * 8;
        launch.page_bytes = std::min(detail::page_bytes, pages_bytes / (2 * nr_blocks) / 4096 * 4096);
        launch.own_bytes = (options_.per_thread_bytes + 15) / 16 * 16;
        const size_t nr_own = nr_blocks * detail::own_places * threads.x * threads.y * threads.z;
        detail::make_arrays(parts_->on_device, parts_->on_device_bytes, false, [&](detail::Cutter &cutter) {
            cutter.cut(launch.control, 1);
            cutter.cut(launch.contexts, nr_blocks);
            cutter.cut(launch.kept, nr_blocks * launch.kept_bytes);
            cutter.cut(launch.own, nr_own * launch.own_bytes);
        });
        detail::make_arrays(parts_->pinned, parts_->pinned_bytes, true, [&](detail::Cutter &cutter) {
            cutter.cut(launch.failure, 1);
            cutter.cut(launch.asked, nr_blocks);
            cutter.cut(launch.states, nr_blocks);
            cutter.cut(launch.answers, nr_blocks);
            cutter.cut(launch.lines, nr_slots);
            cutter.cut(launch.names, nr_slots * detail::name_bytes);
            cutter.cut(launch.pages, nr_blocks * 2 * launch.page_bytes);
        });
        std::memset(parts_->pinned.get(), 0, reinterpret_cast<unsigned char *>(launch.lines) - parts_->pinned.get());
        detail::check(cudaMemsetAsync(launch.control, 0, sizeof(detail::Control), parts_->stream),
                      "the control of a launch");
        launch.give_way = parts_->word.get();
        launch.look_cycles = parts_->cycles_per_us * look_us;
        launch.idle_cycles = parts_->cycles_per_us * options_.idle_us;
        launch.logical[0] = blocks.x;
        launch.logical[1] = blocks.y;
        launch.logical[2] = blocks.z;
        launch.points = options_.points;
        return launch;
    }

    void begin_kernel(const detail::Launch &launch)
    {
        if (launch.is_resumed) { /* else all of it is zero */
            const size_t of_one_kernel = offsetof(detail::Control, next);
            detail::check(cudaMemsetAsync(launch.control, 0, of_one_kernel, parts_->stream), "the control of a kernel");
        }
        parts_->service.set_running(true);
        nr_kernels_++;
    }

    bool is_left_after_kernel(const detail::Launch &launch, unsigned nr_blocks)
    {
        cudaError_t result = cudaGetLastError();
        if (result == cudaSuccess) { result = cudaEventRecord(parts_->ended, parts_->stream); }
        if (result == cudaSuccess) { result = cudaEventSynchronize(parts_->ended); }
        parts_->service.set_running(false);
        const detail::Failure &failure = *launch.failure;
        if (failure.is_set) {
            const std::string place =
                failure.line ? std::string(", ") + failure.file + ":" + std::to_string(failure.line) : "";
            throw Error(std::string("gloop: ") + failure.text + place);
        }
        detail::check(result, "a kernel");
        bool is_left = false, is_forced = false;
        for (unsigned block = 0; block < nr_blocks; block++) {
            is_left = is_left || launch.states[block].left != detail::Left::finished;
            is_forced = is_forced || launch.states[block].left == detail::Left::forced;
        }
        if (is_left) { parts_->service.wait_for_answer(is_forced); }
        return is_left && !is_forced;
    }

    void end()
    {
        parts_->service.set_running(false);
        parts_->service.finish();
    }

    Options options_;
    pid_t process_;
    int device_ = 0;
    std::unique_ptr<detail::Parts> parts_;
    std::atomic<unsigned long long> nr_kernels_{0};
};
} // namespace gloop
