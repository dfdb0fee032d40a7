/*
 * Who serves requests: one thread that looks at what blocks ask and has the sockets, and some for what may take long:
 * files, names, and copies by the driver. The first one spins while requests come, naps while a kernel runs without
 * any, and sleeps while none runs.
 */
#ifndef GLOOP_SERVICE_CUH
#define GLOOP_SERVICE_CUH

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <signal.h>
#include <thread>

#include "files.cuh"
#include "options.cuh"
#include "sockets.cuh"

namespace gloop
{
namespace detail
{

class Service
{
  public:
    Service(const Options &options, int device)
        : device_(device), cache_(options.cache_bytes), pages_(make_pinned_memory(2 * pages_each_way * page_bytes))
    {
        for (unsigned page = 0; page < pages_each_way; page++) {
            free_pages_.push_back(reinterpret_cast<std::uint64_t>(pages_.get() + (pages_each_way + page) * page_bytes));
        }
        /* Signals are for the program's own threads. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            threads_.emplace_back([this] { look(); });
            for (unsigned number = 0; number < std::max(1u, options.io_threads); number++) {
                copiers_.push_back(std::make_unique<Copier>());
                threads_.emplace_back([this, copier = copiers_.back().get()] { work(*copier); });
            }
        } catch (...) {
            end();
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~Service()
    {
        end();
        for (const auto &each : open_) {
            ::close(each.first);
        }
    }

    Service(const Service &) = delete;
    Service &operator=(const Service &) = delete;

    unsigned char *pages_to_write() const { return pages_.get(); }
    unsigned long long nr_requests() const { return nr_requests_; }
    unsigned long long nr_hits() const { return cache_.nr_hits(); }

    /* Before the first kernel of a launch. */
    void begin(const Launch &launch, unsigned nr_blocks)
    {
        const std::lock_guard<std::mutex> lock(looking_);
        launch_ = launch;
        nr_blocks_ = nr_blocks;
        seen_.assign(nr_blocks, {0, 0});
        lent_.assign(nr_blocks * slots_per_block, 0);
        failure_.clear();
    }

    void set_running(bool is_running)
    {
        is_running_ = is_running;
        sockets_.ring();
    }

    /* After a kernel: until a block could go on. Throws what went wrong in a thread. */
    void wait_for_answer()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        answered_.wait(lock, [&] { return !failure_.empty() || is_anybody_ready(); });
        throw_failure();
    }

    /* After the last kernel: nothing of it is served any more. */
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
        for (const std::uint64_t page : lent_) {
            if (page) {
                free_pages_.push_back(page);
            }
        }
        lent_.clear();
    }

    void throw_failure() const
    {
        if (!failure_.empty()) {
            throw Error(failure_);
        }
    }

  private:
    /* The thread that looks. */
    void look()
    {
        using Clock = std::chrono::steady_clock;
        constexpr timespec nap = {0, 50 * 1000};
        Clock::time_point last = Clock::now();
        while (!is_ending_) {
            bool is_running;
            { /* The bell is emptied first: whoever rings from now on ends the sleep below. */
                const std::lock_guard<std::mutex> lock(looking_);
                sockets_.look([this](Job &&job, std::int64_t result) { end_of_socket(std::move(job), result); });
                is_running = is_running_;
                serve_handed();
                if (look_at_blocks()) {
                    last = Clock::now();
                }
            }
            if (!is_running) {
                sockets_.sleep(nullptr);
            } else if (Clock::now() - last > std::chrono::microseconds(50)) {
                sockets_.sleep(&nap);
            }
        }
    }

    bool look_at_blocks()
    {
        bool is_any = false;
        for (unsigned block = 0; block < nr_blocks_; block++) {
            Asked now;
            const std::uint64_t both =
                __atomic_load_n(reinterpret_cast<std::uint64_t *>(&launch_.asked[block]), __ATOMIC_ACQUIRE);
            std::memcpy(&now, &both, sizeof(now));
            const std::uint32_t released = now.released ^ seen_[block].released;
            std::uint32_t asked = now.asked ^ seen_[block].asked;
            seen_[block] = now;
            for (std::uint32_t bits = released; bits; bits &= bits - 1) {
                release(block * slots_per_block + __builtin_ctz(bits));
            }
            for (; asked; asked &= asked - 1) {
                is_any = true;
                nr_requests_++;
                take(block * slots_per_block + __builtin_ctz(asked));
            }
        }
        return is_any;
    }

    void take(std::size_t place)
    {
        Job job = {};
        job.place = place;
        job.line = launch_.lines[place];
        const Call call = job.line.call;
        if (call == Call::open || call == Call::connect || call == Call::bind) {
            job.name = launch_.names + place * name_bytes;
        }
        const bool is_of_socket =
            call == Call::accept || call == Call::receive || call == Call::end || call == Call::unbind;
        if (is_of_socket || (call == Call::send && job.line.page)) {
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
        sockets_.serve(std::move(job),
                       [this](Job &&done, std::int64_t result) { end_of_socket(std::move(done), result); });
    }

    void end_of_socket(Job &&job, std::int64_t result)
    {
        const Call call = job.line.call;
        if (call == Call::connect && result < 0) {
            forget(job.line.fd);
            ::close(job.line.fd);
        }
        if (call == Call::accept && result >= 0) {
            remember(int(result), "a connection");
        }
        if (call != Call::receive || result <= 0) {
            answer(job, result);
            return;
        }
        job.data.resize(result);
        const std::uint64_t page = std::size_t(result) <= page_bytes ? lend(job.place) : 0;
        if (page) {
            std::memcpy(reinterpret_cast<void *>(page), job.data.data(), result);
            answer(job, result, page);
        } else {
            give_work(std::move(job));
        }
    }

    /* What the other threads hand back: sockets to wait for. */
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

    void give_work(Job &&job)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            work_.push_back(std::move(job));
        }
        has_work_.notify_one();
    }

    /* The other threads. */
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
            const int fd = job.line.fd;
            std::string failure;
            try {
                serve(copier, std::move(job));
            } catch (const std::exception &error) {
                failure = error.what();
            }
            lock.lock();
            if (!failure.empty()) {
                fail(open_.count(fd) ? failure + " (" + open_[fd] + ")" : failure);
            }
            nr_busy_--;
            answered_.notify_all();
        }
    }

    void serve(Copier &copier, Job &&job)
    {
        const Line &line = job.line;
        switch (line.call) {
        case Call::open: {
            const int fd = ::open(job.name.c_str(), line.flags | O_CLOEXEC, line.mode);
            return answer(job, fd < 0 ? -errno : remember(fd, job.name));
        }
        case Call::read:
            return read(copier, job);
        case Call::write:
            answer(job, line.page ? write_all(line.fd, reinterpret_cast<const unsigned char *>(line.page), line.bytes,
                                              line.offset)
                                  : write_from_device(copier, line.fd, line.address, line.bytes, line.offset));
            return cache_.forget(line.fd);
        case Call::mmap:
            return answer(job, cache_.map(copier, line));
        case Call::munmap:
            return answer(job, cache_.unmap(copier, line.address));
        case Call::msync:
            return answer(job, cache_.sync(copier, line.address));
        case Call::fstat: {
            struct stat file;
            return answer(job, ::fstat(line.fd, &file) == 0 ? file.st_size : -errno);
        }
        case Call::ftruncate:
            cache_.forget(line.fd);
            return answer(job, or_errno(::ftruncate(line.fd, off_t(line.bytes))));
        case Call::close:
            forget(line.fd);
            return answer(job, or_errno(::close(line.fd)));
        case Call::bind:
        case Call::connect:
            return make_socket(std::move(job));
        case Call::receive:
            in_steps(job.data.size(), Copier::bytes_at_once, [&](std::size_t done, std::size_t left) {
                std::memcpy(copier.staging(), job.data.data() + done, left);
                copier.to_device(line.address + done, left);
                return std::int64_t(left);
            });
            return answer(job, std::int64_t(job.data.size()));
        default: /* send */
            job.data.resize(line.bytes);
            in_steps(line.bytes, Copier::bytes_at_once, [&](std::size_t done, std::size_t left) {
                copier.from_device(line.address + done, left);
                std::memcpy(job.data.data() + done, copier.staging(), left);
                return std::int64_t(left);
            });
            return hand_back(std::move(job));
        }
    }

    void read(Copier &copier, const Job &job)
    {
        const Line &line = job.line;
        const std::uint64_t page = line.bytes <= page_bytes ? lend(job.place) : 0;
        if (page) {
            const std::int64_t result =
                read_all(line.fd, reinterpret_cast<unsigned char *>(page), line.bytes, line.offset);
            if (result <= 0) {
                release(job.place);
            }
            answer(job, result, result > 0 ? page : 0);
        } else {
            answer(job, read_to_device(copier, line.fd, line.address, line.bytes, line.offset));
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

    void hand_back(Job &&job)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            handed_.push_back(std::move(job));
        }
        sockets_.ring();
    }

    /* Both sides. */
    void answer(const Job &job, std::int64_t result, std::uint64_t page = 0)
    {
        Line &line = launch_.lines[job.place];
        line.result = result;
        line.page = page;
        std::uint32_t *word = &launch_.answers[job.place / slots_per_block].answered;
        __atomic_fetch_xor(word, 1u << job.place % slots_per_block, __ATOMIC_SEQ_CST);
        if (!is_running_) {
            const std::lock_guard<std::mutex> lock(mutex_);
            answered_.notify_all();
        }
    }

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
            const std::uint32_t out = launch_.asked[block].asked ^ answered;
            if (state.left == Left::ready || (state.left == Left::waiting && (state.waiting & ~out))) {
                return true;
            }
        }
        return false;
    }

    std::uint64_t lend(std::size_t place)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_pages_.empty()) {
            return 0;
        }
        lent_[place] = free_pages_.back();
        free_pages_.pop_back();
        return lent_[place];
    }

    void release(std::size_t place)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        free_pages_.push_back(lent_[place]);
        lent_[place] = 0;
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

    void end()
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
    }

    int device_;
    Cache cache_;
    PinnedMemory pages_;
    Sockets sockets_;
    std::vector<std::unique_ptr<Copier>> copiers_;

    std::mutex looking_; /* held while the first thread looks: what it knows of blocks, and the sockets */
    Launch launch_ = {};
    unsigned nr_blocks_ = 0;
    std::vector<Asked> seen_;

    std::mutex mutex_; /* of what follows */
    std::condition_variable has_work_, answered_;
    std::deque<Job> work_;
    std::vector<Job> handed_;
    std::vector<std::uint64_t> free_pages_, lent_;
    std::map<int, std::string> open_;
    std::string failure_;
    unsigned nr_busy_ = 0;

    std::atomic<bool> is_running_{false}, is_ending_{false};
    std::atomic<unsigned long long> nr_requests_{0};
    std::vector<std::thread> threads_;
};

} // namespace detail
} // namespace gloop

#endif
