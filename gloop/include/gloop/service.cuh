/* Who serves requests: one thread that looks at what blocks ask and at sockets, and workers for files, names and copies
 * by the driver. The first spins while requests come, naps while a kernel runs without any, and else sleeps. */
#pragma once

#include <chrono>
#include <deque>
#include <signal.h>
#include <sys/prctl.h>
#include <thread>

#include "cache.cuh"
#include "sockets.cuh"

namespace gloop::detail
{
class Service
{
  public:
    Service(const Options &options, int device) : Service(device, options)
    {
        sigset_t all, before; /* signals are for the program's own threads */
        sigfillset(&all), pthread_sigmask(SIG_SETMASK, &all, &before);
        std::string failure;
        try {
            threads_.emplace_back([this] { look(); });
            for (Copier &copier : copiers_) {
                threads_.emplace_back([this, &copier] { work(copier); });
            }
        } catch (const std::system_error &error) {
            failure = error.what();
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (!failure.empty()) { throw Error::of("a thread of the host loop: ", failure); } /* ends those there are */
    }

    ~Service()
    {
        std::unique_lock lock(mutex_);
        is_ending_ = true;
        lock.unlock();
        has_work_.notify_all();
        sockets_.ring();
        for (std::thread &thread : threads_) { thread.join(); }
        for (const auto &each : open_) { ::close(each.first); }
    }

    unsigned long long nr_requests() const { return nr_requests_; }
    unsigned long long nr_hits() const { return cache_.nr_hits; }
    bool is_running() const { return is_running_; }

    /* Before the first kernel of a launch. */
    void begin(const Launch &launch, unsigned nr_blocks)
    {
        const auto looking = stop_looking();
        const std::lock_guard lock(mutex_);
        launch_ = launch;
        nr_blocks_ = nr_blocks;
        seen_.assign(nr_blocks, 0);
        failure_.clear();
    }

    /* A kernel is on its way, or has ended, which the thread that looks sees after a nap at the latest. */
    void set_running(bool is_running)
    {
        is_running_ = is_running;
        if (is_running) { sockets_.ring(); }
    }

    /* After a kernel: until a block could go on, or at once where an exit was forced. Throws what a thread threw. */
    void wait_for_answer(bool is_forced)
    {
        std::unique_lock lock(mutex_);
        answered_.wait(lock, [&] { return is_forced || !failure_.empty() || is_anybody_ready(); });
        if (!failure_.empty()) { throw Error(failure_); }
    }

    /* After the last kernel, however it ended: nothing of it is served any more. */
    void finish()
    {
        forget_blocks();
        std::unique_lock lock(mutex_);
        answered_.wait(lock, [&] { return work_.clear(), nr_busy_ == 0; });
        lock.unlock();
        forget_blocks(); /* what workers gave to sockets meanwhile */
    }

  private:
    Service(int device, const Options &options)
        : device_(device), longest_nap_ns_(options.idle_us ? std::min(options.idle_us * 500l, 999999999l) : 200 * 1000),
          cache_(options.cache_bytes), copiers_(std::max(1u, options.io_threads))
    {
    }

    void look()
    {
        using Clock = std::chrono::steady_clock;
        Clock::time_point last = Clock::now();
        bool was_running = false;
        prctl(PR_SET_TIMERSLACK, 1);
        while (!is_ending_) {
            while (nr_knocking_) { std::this_thread::yield(); }
            std::unique_lock looking(looking_);
            sockets_.look(); /* empties the bell, first: who rings from now on ends the sleep below */
            const bool is_running = is_running_;
            const unsigned long long before = nr_requests_;
            for (unsigned look = 0; !look || (look < 8 && !nr_knocking_); look++) { look_at_blocks(); }
            looking.unlock();
            if (nr_requests_ != before || (is_running && !was_running)) { last = Clock::now(); }
            was_running = is_running;
            const long waited_ns = std::chrono::nanoseconds(Clock::now() - last).count();
            const timespec nap = {0, std::min(waited_ns, longest_nap_ns_)}; /* longer when nobody has asked for long */
            if (!is_ending_ && (!is_running || waited_ns > 50 * 1000)) { sockets_.sleep(is_running ? &nap : nullptr); }
        }
    }

    std::unique_lock<std::mutex> stop_looking()
    {
        std::unique_lock looking(looking_, std::defer_lock);
        for (nr_knocking_++; !looking.try_lock();) { std::this_thread::yield(); }
        nr_knocking_--;
        return looking;
    }

    void forget_blocks()
    {
        const auto looking = stop_looking();
        nr_blocks_ = 0;
        sockets_.cancel_all();
    }

    /* The device wrote the requests, so all are fetched before the first is taken. */
    void look_at_blocks()
    {
        asked_.clear();
        asked_for_.fd = -1;
        for (unsigned block = 0; block < nr_blocks_; block++) {
            const uint32_t now = __atomic_load_n(&launch_.asked[block], __ATOMIC_ACQUIRE);
            for (uint32_t bits = now ^ seen_[block]; bits; bits &= bits - 1) {
                asked_.push_back(size_t(block) * slots_per_block + __builtin_ctz(bits));
                __builtin_prefetch(&launch_.lines[asked_.back()], 1);
                __builtin_prefetch(&launch_.answers[block], 1);
            }
            seen_[block] = now;
        }
        const auto is_before = [&](size_t place) { return launch_.lines[place].call != Call::close; };
        std::partition(asked_.begin(), asked_.end(), is_before); /* it is closed behind what was asked first */
        for (const size_t place : asked_) { take(place); }
    }

    void take(size_t place)
    {
        Job job = {place, launch_.lines[place], {}, {}, 0, ++nr_requests_};
        const Call call = job.line.call;
        if (call == Call::open || call == Call::connect || call == Call::bind) {
            job.name = launch_.names + place * name_bytes;
        }
        if (call >= Call::close && job.line.fd < 0) { return answer(job, -EBADF); }
        /* What many blocks ask for again and again, and what takes less time than to wake another thread. */
        const int64_t mapped = call == Call::map ? cache_.map(nullptr, job.line, asked_for_) : 0;
        if (mapped || call == Call::unmap) {
            answer(job, mapped ? mapped : cache_.unmap(job.line.address));
        } else if (call == Call::close) {
            sockets_.end(job);
            const bool is_file = asked_for_.look(job.line.fd) && !S_ISSOCK(asked_for_.stat.st_mode); /* may take long */
            is_file ? give_work(std::move(job)) : answer(job, close(job.line.fd));
        } else if (call > Call::close && (call != Call::send || job.line.page || job.line.bytes == 0)) {
            sockets_.serve(std::move(job));
        } else {
            give_work(std::move(job));
        }
    }

    void end_of_socket(Job &&job, int64_t result)
    {
        if (job.line.call == Call::connect && result < 0) {
            ::close(job.line.fd);
            if (job.next && result != -ECANCELED) { return give_work(std::move(job)); } /* for its next address */
        } else if (job.line.call == Call::accept || job.line.call == Call::connect) {
            remember(result, job.address());
        } else if (job.line.call == Call::receive && result > 0 && !job.line.page) {
            job.data.resize(result);
            return give_work(std::move(job));
        }
        answer(job, result);
    }

    void give_work(Job &&job)
    {
        const std::lock_guard lock(mutex_);
        work_.push_back(std::move(job));
        has_work_.notify_one();
    }

    void work(Copier &copier)
    {
        cudaSetDevice(device_);
        std::unique_lock lock(mutex_);
        for (;;) {
            has_work_.wait(lock, [&] { return is_ending_ || !work_.empty(); });
            if (is_ending_) { return; }
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
            if (!failure.empty()) { fail(open_.count(fd) ? failure + " (" + open_[fd] + ")" : failure); }
            answered_.notify_all();
        }
    }

    void serve(Copier &copier, Job &&job)
    {
        const Line &line = job.line;
        File file;
        int64_t result = 0;
        switch (line.call) {
        case Call::open:
            result = or_errno(::open(job.name.c_str(), line.flags | O_CLOEXEC | O_NONBLOCK, line.mode)); /* a FIFO */
            return answer(job, remember(result, job.name));
        case Call::read:
            return answer(job, line.page
                                   ? read_all(line.fd, job.bytes(), line.bytes, line.offset)
                                   : read_to_device(copier, line.fd, line.address, line.bytes, line.offset, false));
        case Call::write:
            result = line.page ? write_all(line.fd, job.bytes(), line.bytes, line.offset)
                               : write_from_device(copier, line.fd, line.address, line.bytes, line.offset);
            cache_.forget(line.fd);
            return answer(job, result);
        case Call::map:
            return answer(job, cache_.map(&copier, line, file));
        case Call::sync:
            return answer(job, cache_.sync(copier, line));
        case Call::stat:
            return answer(job, file.look(line.fd) ? file.stat.st_size : -errno);
        case Call::resize:
            result = or_errno(::ftruncate(line.fd, off_t(line.bytes)));
            cache_.forget(line.fd);
            return answer(job, result);
        case Call::close:
            return answer(job, close(line.fd));
        case Call::receive:
            copier.copy(reinterpret_cast<void *>(line.address), job.data.data(), job.data.size());
            return answer(job, int64_t(job.data.size()));
        case Call::send:
            job.data.resize(line.bytes);
            copier.copy(job.data.data(), reinterpret_cast<const void *>(line.address), line.bytes);
            return serve_socket(std::move(job));
        default:
            job.line.fd = socket_of(job);
            if (job.line.fd >= 0 && line.call == Call::connect) { return serve_socket(std::move(job)); }
            return answer(job, remember(job.line.fd, job.address()));
        }
    }

    void serve_socket(Job &&job)
    {
        const auto looking = stop_looking();
        sockets_.serve(std::move(job));
    }

    void answer(const Job &job, int64_t result)
    {
        launch_.lines[job.place].result = result;
        uint64_t *word = &launch_.answers[job.place / slots_per_block].word;
        uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED), after = 0;
        do {
            after = Answers::with(before, job.place % slots_per_block, result);
        } while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
        if (!is_running_) {
            const std::lock_guard lock(mutex_);
            answered_.notify_all();
        }
    }

    /* Under the lock: ends the launch, which throws this. */
    void fail(const std::string &text)
    {
        failure_ = text;
        for (unsigned block = 0; block < nr_blocks_; block++) {
            __atomic_fetch_or(&launch_.answers[block].word, Answers::order, __ATOMIC_RELEASE);
        }
    }

    bool is_anybody_ready() const
    {
        for (unsigned block = 0; block < nr_blocks_; block++) {
            const State &state = launch_.states[block];
            const uint64_t answers = __atomic_load_n(&launch_.answers[block].word, __ATOMIC_SEQ_CST);
            const uint32_t taken = state.waiting & ~(launch_.asked[block] ^ uint32_t(answers));
            if (state.left == Left::ready || (state.left == Left::waiting && taken)) { return true; }
        }
        return false;
    }

    int64_t close(int fd)
    {
        std::unique_lock lock(mutex_);
        open_.erase(fd); /* first: then another thread may open one of this number */
        lock.unlock();
        return or_errno(::close(fd));
    }

    int64_t remember(int64_t fd, const std::string &name)
    {
        const std::lock_guard lock(mutex_);
        if (fd >= 0) { open_[int(fd)] = name; }
        return fd;
    }

    const int device_;
    const long longest_nap_ns_; /* a block that waits for half of its time has not ended the kernel */
    Cache cache_;
    Sockets sockets_{[this](Job &&job, int64_t result) { end_of_socket(std::move(job), result); }};
    std::vector<Copier> copiers_;
    std::mutex looking_; /* of what the thread that looks knows of blocks, and of the sockets */
    Launch launch_ = {};
    unsigned nr_blocks_ = 0;
    std::vector<uint32_t> seen_;
    std::vector<size_t> asked_;
    File asked_for_;   /* mapped last, of those that were asked for together */
    std::mutex mutex_; /* of what follows */
    std::condition_variable has_work_, answered_;
    std::deque<Job> work_;
    std::map<int, std::string> open_;
    std::string failure_;
    unsigned nr_busy_ = 0;
    std::atomic<unsigned> nr_knocking_{0}; /* who want the first lock, which is taken again at once */
    std::atomic<bool> is_running_{false}, is_ending_{false};
    std::atomic<unsigned long long> nr_requests_{0};
    std::vector<std::thread> threads_;
};
} // namespace gloop::detail
