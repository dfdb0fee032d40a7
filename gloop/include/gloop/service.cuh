/*
 * Who serves requests: one thread that looks at what blocks ask and has the sockets, and workers for what may take
 * long: files, names, and copies by the driver. The first one spins while requests come, naps while a kernel runs
 * without any, and sleeps while none runs.
 */
#pragma once

#include <chrono>
#include <deque>
#include <signal.h>
#include <thread>

#include "cache.cuh"
#include "sockets.cuh"

namespace gloop::detail
{

class Service
{
  public:
    Service(const Options &options, int device)
        : device_(device), cache_(options.cache_bytes), copiers_(std::max(1u, options.io_threads))
    {
        sigset_t all, before; /* signals are for the program's own threads */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        threads_.emplace_back([this] { look(); });
        for (Copier &copier : copiers_) {
            threads_.emplace_back([this, &copier] { work(copier); });
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~Service()
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_ending_ = true;
        }
        has_work_.notify_all();
        sockets_.ring();
        for (std::thread &thread : threads_) {
            thread.join();
        }
        for (const auto &each : open_) {
            ::close(each.first);
        }
    }

    Service(const Service &) = delete;
    Service &operator=(const Service &) = delete;

    unsigned long long nr_requests() const { return nr_requests_; }
    unsigned long long nr_hits() const { return cache_.nr_hits(); }
    bool is_running() const { return is_running_; }

    /* Before the first kernel of a launch. */
    void begin(const Launch &launch, unsigned nr_blocks)
    {
        const std::lock_guard<std::mutex> looking(looking_), lock(mutex_);
        launch_ = launch;
        nr_blocks_ = nr_blocks;
        seen_.assign(nr_blocks, 0);
        failure_.clear();
    }

    void set_running(bool is_running)
    {
        is_running_ = is_running;
        sockets_.ring();
    }

    /* After a kernel: until a block could go on, or not at all where an exit was forced. Throws what went wrong in a
     * thread. */
    void wait_for_answer(bool is_forced)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        answered_.wait(lock, [&] { return is_forced || !failure_.empty() || is_anybody_ready(); });
        if (!failure_.empty()) {
            throw Error(failure_);
        }
    }

    /* After the last kernel, however it ended: nothing of it is served any more. */
    void finish()
    {
        {
            const std::lock_guard<std::mutex> looking(looking_);
            nr_blocks_ = 0;
            sockets_.drop_all();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        work_.clear();
        answered_.wait(lock, [&] { return nr_busy_ == 0; });
        handed_.clear();
    }

  private:
    void look()
    {
        using Clock = std::chrono::steady_clock;
        constexpr timespec nap = {0, 50 * 1000};
        Clock::time_point last = Clock::now();
        while (!is_ending_) {
            bool is_running;
            { /* The bell is emptied first: whoever rings from now on ends the sleep below. */
                const std::lock_guard<std::mutex> looking(looking_);
                sockets_.look();
                is_running = is_running_;
                serve_handed();
                last = look_at_blocks() ? Clock::now() : last;
            }
            if (!is_running) {
                sockets_.sleep(nullptr);
            } else if (Clock::now() - last > std::chrono::microseconds(50)) {
                sockets_.sleep(&nap);
            }
        }
    }

    /* Whether there was any request. */
    bool look_at_blocks()
    {
        const unsigned long long before = nr_requests_;
        for (unsigned block = 0; block < nr_blocks_; block++) {
            const std::uint32_t now = __atomic_load_n(&launch_.asked[block], __ATOMIC_ACQUIRE);
            for (std::uint32_t bits = now ^ seen_[block]; bits; bits &= bits - 1) {
                nr_requests_++;
                take(std::size_t(block) * slots_per_block + __builtin_ctz(bits));
            }
            seen_[block] = now;
        }
        return nr_requests_ != before;
    }

    void take(std::size_t place)
    {
        Job job = {place, launch_.lines[place], {}, {}};
        const Call call = job.line.call;
        if (call == Call::open || call == Call::connect || call == Call::bind) {
            job.name = launch_.names + place * name_bytes;
        }
        const bool is_of_socket = call >= Call::unbind;
        if (is_of_socket && (call != Call::send || job.line.page || job.line.bytes == 0)) {
            serve_socket(std::move(job));
        } else {
            give_work(std::move(job));
        }
    }

    void serve_socket(Job &&job)
    {
        if (job.line.call == Call::end || job.line.call == Call::unbind) {
            forget(job.line.fd);
        }
        sockets_.serve(std::move(job));
    }

    void end_of_socket(Job &&job, std::int64_t result)
    {
        if (job.line.call == Call::connect && result < 0) {
            forget(job.line.fd);
            ::close(job.line.fd);
        } else if (job.line.call == Call::accept && result >= 0) {
            remember(int(result), "a connection");
        } else if (job.line.call == Call::receive && result > 0 && !job.line.page) {
            job.data.resize(result);
            return give_work(std::move(job));
        }
        answer(job, result);
    }

    /* Sockets that a worker has made, or brought what is to be sent. */
    void serve_handed()
    {
        std::vector<Job> handed;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            handed.swap(handed_);
        }
        for (Job &job : handed) {
            serve_socket(std::move(job));
        }
    }

    void hand_back(Job &&job)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            handed_.push_back(std::move(job));
        }
        sockets_.ring();
    }

    void give_work(Job &&job)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            work_.push_back(std::move(job));
        }
        has_work_.notify_one();
    }

    void work(Copier &copier)
    {
        cudaSetDevice(device_);
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            has_work_.wait(lock, [&] { return is_ending_ || !work_.empty(); });
            if (is_ending_) {
                return;
            }
            Job job = std::move(work_.front());
            work_.pop_front();
            nr_busy_++;
            lock.unlock();
            std::string failure;
            const int fd = job.line.fd;
            try {
                serve(copier, std::move(job));
            } catch (const std::exception &error) {
                failure = error.what();
            }
            lock.lock();
            nr_busy_--;
            if (!failure.empty()) {
                fail(open_.count(fd) ? failure + " (" + open_[fd] + ")" : failure);
            }
            answered_.notify_all();
        }
    }

    void serve(Copier &copier, Job &&job)
    {
        const Line &line = job.line;
        struct stat file;
        std::int64_t result = 0;
        switch (line.call) {
        case Call::open:
            result = or_errno(::open(job.name.c_str(), line.flags | O_CLOEXEC, line.mode));
            return answer(job, result < 0 ? result : remember(int(result), job.name));
        case Call::read:
            return answer(job, line.page ? read_all(line.fd, job.bytes(), line.bytes, line.offset)
                                         : read_to_device(copier, line.fd, line.address, line.bytes, line.offset));
        case Call::write:
            result = line.page ? write_all(line.fd, job.bytes(), line.bytes, line.offset)
                               : write_from_device(copier, line.fd, line.address, line.bytes, line.offset);
            cache_.forget(line.fd);
            return answer(job, result);
        case Call::mmap:
            return answer(job, cache_.map(copier, line));
        case Call::munmap:
            return answer(job, cache_.unmap(line.address));
        case Call::msync:
            return answer(job, cache_.sync(copier, line));
        case Call::fstat:
            return answer(job, ::fstat(line.fd, &file) == 0 ? file.st_size : -errno);
        case Call::ftruncate:
            result = or_errno(::ftruncate(line.fd, off_t(line.bytes)));
            cache_.forget(line.fd);
            return answer(job, result);
        case Call::close:
            forget(line.fd);
            return answer(job, or_errno(::close(line.fd)));
        case Call::receive:
            each_piece(job, [&](std::size_t done, std::size_t left) {
                std::memcpy(copier.staging(), job.data.data() + done, left);
                copier.to_device(line.address + done, left);
            });
            return answer(job, std::int64_t(job.data.size()));
        case Call::send:
            job.data.resize(line.bytes);
            each_piece(job, [&](std::size_t done, std::size_t left) {
                copier.from_device(line.address + done, left);
                std::memcpy(job.data.data() + done, copier.staging(), left);
            });
            return hand_back(std::move(job));
        default:
            return make_socket(std::move(job));
        }
    }

    template <class Copy> static void each_piece(const Job &job, const Copy &copy)
    {
        for (std::size_t done = 0; done < job.data.size(); done += Copier::bytes_at_once) {
            copy(done, std::min(Copier::bytes_at_once, job.data.size() - done));
        }
    }

    void make_socket(Job &&job)
    {
        const int fd = socket_of(job.name, job.line.mode, job.line.call == Call::bind);
        if (fd >= 0) {
            remember(fd, job.name + ":" + std::to_string(job.line.mode));
        }
        if (fd < 0 || job.line.call == Call::bind) {
            return answer(job, fd);
        }
        job.line.fd = fd;
        hand_back(std::move(job));
    }

    void answer(const Job &job, std::int64_t result)
    {
        launch_.lines[job.place].result = result;
        std::uint32_t *word = &launch_.answers[job.place / slots_per_block].answered;
        __atomic_fetch_xor(word, 1u << job.place % slots_per_block, __ATOMIC_SEQ_CST);
        if (!is_running_) {
            const std::lock_guard<std::mutex> lock(mutex_);
            answered_.notify_all();
        }
    }

    /* Under the lock: ends the launch, which throws this. */
    void fail(const std::string &text)
    {
        failure_ = text;
        for (unsigned block = 0; block < nr_blocks_; block++) {
            __atomic_store_n(&launch_.answers[block].orders, 1, __ATOMIC_RELEASE);
        }
    }

    bool is_anybody_ready() const
    {
        for (unsigned block = 0; block < nr_blocks_; block++) {
            const State &state = launch_.states[block];
            const std::uint32_t answered = __atomic_load_n(&launch_.answers[block].answered, __ATOMIC_SEQ_CST);
            const std::uint32_t taken = state.waiting & ~(launch_.asked[block] ^ answered);
            if (state.left == Left::ready || (state.left == Left::waiting && taken)) {
                return true;
            }
        }
        return false;
    }

    int remember(int fd, const std::string &name)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_[fd] = name;
        return fd;
    }

    void forget(int fd)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_.erase(fd);
    }

    const int device_;
    Cache cache_;
    Sockets sockets_{[this](Job &&job, std::int64_t result) { end_of_socket(std::move(job), result); }};
    std::vector<Copier> copiers_;

    std::mutex looking_; /* of what the thread that looks knows of blocks, and of the sockets */
    Launch launch_ = {};
    unsigned nr_blocks_ = 0;
    std::vector<std::uint32_t> seen_;

    std::mutex mutex_; /* of what follows */
    std::condition_variable has_work_, answered_;
    std::deque<Job> work_;
    std::vector<Job> handed_;
    std::map<int, std::string> open_;
    std::string failure_;
    unsigned nr_busy_ = 0;

    std::atomic<bool> is_running_{false}, is_ending_{false};
    std::atomic<unsigned long long> nr_requests_{0};
    std::vector<std::thread> threads_;
};

} // namespace gloop::detail
