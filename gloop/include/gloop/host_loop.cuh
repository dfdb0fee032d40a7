/*
 * The host loop: launches a kernel of event loops, and launches it again for as long as blocks have left with work. In
 * between, when all they wait for is an answer, no kernel is on the device.
 */
#ifndef GLOOP_HOST_LOOP_CUH
#define GLOOP_HOST_LOOP_CUH

#include <unistd.h>

#include "fit.cuh"
#include "memory.cuh"
#include "options.cuh"
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

} // namespace detail

class HostLoop
{
  public:
    explicit HostLoop(const Options &options = Options()) : options_(options), process_(getpid())
    {
        detail::check(cudaGetDevice(&device_), "the device");
        word_ = detail::Word::of_device(device_);
        service_ = std::make_unique<detail::Service>(options, device_);
        detail::check(cudaStreamCreate(&stream_), "a stream");
        detail::check(cudaEventCreateWithFlags(&ended_, cudaEventBlockingSync | cudaEventDisableTiming), "an event");
    }

    ~HostLoop()
    {
        if (getpid() != process_) { /* nothing of all this is a forked child's, threads least of all */
            service_.release();
            on_device_.release();
            pinned_.release();
            return;
        }
        cudaEventDestroy(ended_);
        cudaStreamDestroy(stream_);
    }

    HostLoop(const HostLoop &) = delete;
    HostLoop &operator=(const HostLoop &) = delete;

    /*
     * Calls `entry(loop)` in each logical block, and returns when all callbacks have run. `Where` is the entry's:
     * DeviceLoop<Where>. Throws Error for what does not fit, and for what ended the kernel.
     */
    template <class Where = Shared, class Entry> void launch(dim3 blocks, dim3 threads, const Entry &entry)
    {
        launchWithSharedMemory<Where>(blocks, threads, 0, entry);
    }

    template <class Where = Shared, class Entry>
    void launchWithSharedMemory(dim3 blocks, dim3 threads, std::size_t bytes, const Entry &entry)
    {
        if (getpid() != process_) {
            throw Error("gloop: a host loop of process " + std::to_string(process_) + " does not work in its child " +
                        std::to_string(getpid()) +
                        ": CUDA does not survive fork; make one there before CUDA is used here");
        }
        const auto kernel = &detail::event_loops<Where, Entry>;
        const detail::Fit fit = detail::fit_of(reinterpret_cast<const void *>(kernel), device_, blocks, threads, bytes);
        detail::Launch launch = prepare(fit, blocks, threads);
        service_->begin(launch, fit.nr_blocks);
        try {
            for (bool is_left = true; is_left; launch.is_resumed = 1) {
                begin_kernel();
                kernel<<<fit.nr_blocks, threads, bytes, stream_>>>(launch, entry);
                is_left = is_left_after_kernel(fit.nr_blocks);
            }
        } catch (...) {
            end();
            throw;
        }
        end();
    }

    /* May be asked from any thread. */
    Statistics statistics() const { return {nr_kernels_, service_->nr_requests(), service_->nr_hits(), is_running_}; }

  private:
    detail::Launch prepare(const detail::Fit &fit, dim3 blocks, dim3 threads)
    {
        detail::Launch launch = {};
        launch.kept_bytes = (fit.shared_bytes + 7) / 8 * 8;
        launch.own_bytes = (options_.per_thread_bytes + 15) / 16 * 16;
        const std::size_t nr_own = launch.own_bytes * detail::own_places * threads.x * threads.y * threads.z;
        const auto on_device = [&](detail::Cutter cutter) {
            launch.control = cutter.cut<detail::Control>(1);
            launch.contexts = cutter.cut<detail::Context>(fit.nr_blocks);
            launch.kept = cutter.cut<unsigned char>(fit.nr_blocks * launch.kept_bytes);
            launch.own = cutter.cut<unsigned char>(fit.nr_blocks * nr_own);
            return cutter.bytes();
        };
        const auto pinned = [&](detail::Cutter cutter) {
            launch.failure = cutter.cut<detail::Failure>(1);
            launch.asked = cutter.cut<detail::Asked>(fit.nr_blocks);
            launch.states = cutter.cut<detail::State>(fit.nr_blocks);
            launch.answers = cutter.cut<detail::Answers>(fit.nr_blocks);
            launch.lines = cutter.cut<detail::Line>(fit.nr_blocks * detail::slots_per_block);
            launch.names = cutter.cut<char>(fit.nr_blocks * detail::slots_per_block * detail::name_bytes);
            return cutter.bytes();
        };
        grow(&on_device_, &on_device_bytes_, on_device(detail::Cutter()), detail::make_device_memory);
        grow(&pinned_, &pinned_bytes_, pinned(detail::Cutter()), detail::make_pinned_memory);
        on_device(detail::Cutter(on_device_.get()));
        pinned(detail::Cutter(pinned_.get()));
        std::memset(pinned_.get(), 0, reinterpret_cast<unsigned char *>(launch.lines) - pinned_.get());
        detail::check(cudaMemsetAsync(launch.control, 0, sizeof(detail::Control), stream_), "the control of a launch");
        launch.give_way = word_->address();
        launch.look_cycles = fit.cycles_per_us * look_us;
        launch.idle_cycles = fit.cycles_per_us * options_.idle_us;
        launch.pages = service_->pages_to_write();
        launch.logical[0] = blocks.x;
        launch.logical[1] = blocks.y;
        launch.logical[2] = blocks.z;
        launch.points = options_.points;
        launch_ = launch;
        return launch;
    }

    template <class Memory, class Make>
    static void grow(Memory *memory, std::size_t *bytes, std::size_t wanted, const Make &make)
    {
        if (wanted > *bytes) {
            memory->reset();
            *bytes = 0;
            *memory = make(wanted);
            *bytes = wanted;
        }
    }

    void begin_kernel()
    {
        const std::size_t of_one_kernel = offsetof(detail::Control, next);
        detail::check(cudaMemsetAsync(launch_.control, 0, of_one_kernel, stream_), "the control of a kernel");
        set_running(true);
        nr_kernels_++;
    }

    void set_running(bool is_running)
    {
        is_running_ = is_running;
        service_->set_running(is_running);
    }

    void end()
    {
        set_running(false);
        service_->finish();
    }

    bool is_left_after_kernel(unsigned nr_blocks)
    {
        cudaError_t result = cudaGetLastError();
        if (result == cudaSuccess) {
            result = cudaEventRecord(ended_, stream_);
        }
        if (result == cudaSuccess) {
            result = cudaEventSynchronize(ended_);
        }
        set_running(false);
        const detail::Failure &failure = *launch_.failure;
        if (failure.is_set) {
            throw Error(std::string("gloop: ") + failure.text +
                        (failure.line ? std::string(", ") + failure.file + ":" + std::to_string(failure.line) : ""));
        }
        detail::check(result, "a kernel");
        service_->throw_failure();
        bool is_left = false;
        for (unsigned block = 0; block < nr_blocks; block++) {
            const detail::Left left = launch_.states[block].left;
            if (left == detail::Left::forced) {
                return false;
            }
            is_left |= left != detail::Left::finished;
        }
        if (is_left) {
            service_->wait_for_answer();
        }
        return is_left;
    }

    static constexpr unsigned look_us = 20;

    Options options_;
    pid_t process_;
    int device_ = 0;
    std::shared_ptr<detail::Word> word_;
    std::unique_ptr<detail::Service> service_;
    std::atomic<bool> is_running_{false};
    std::atomic<unsigned long long> nr_kernels_{0};
    cudaStream_t stream_ = nullptr;
    cudaEvent_t ended_ = nullptr;
    detail::DeviceMemory on_device_;
    detail::PinnedMemory pinned_;
    std::size_t on_device_bytes_ = 0, pinned_bytes_ = 0;
    detail::Launch launch_ = {};
};

} // namespace gloop

#endif
