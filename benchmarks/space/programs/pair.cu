/*
 * One program of a pair that shares the GPU, alone in its process, as guests are (benchmarks/space/live.py).
 *
 *   pair critical NAME [--large] [--pause-us US]
 *   pair best-effort NAME [--large] [--launch-us US]
 *
 *   critical     makes rounds: all launches of one, and their end. Pauses between them are of half to one and a half
 *                times as long as it was told, at random
 *   best-effort  repeats its first phase in launches of so long, alone, and of more blocks than fit the device at once
 *
 * It rests, says "ready", and does what it is told on standard input, a word a line:
 *
 *     work      goes on
 *     look      prints what was done since it was told to work, or to look
 *     rest      the same, and stops with the end of the round, or of the launch
 *     fault     writes where there is no memory
 *     hang      launches a block that never ends
 *
 * until the input ends. What was done is an object of JSON: seconds, and times_us of rounds, or the number of blocks.
 *
 * A critical program compares its first round with its loops, and a best-effort one all it did at its end, in small
 * sizes alone: loops take long. All blocks of best effort have to have run once.
 *
 * Exit status: 0, 1 for what came out wrong, 2 for a wrong command line or a refusal of CUDA's.
 */
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <iostream>
#include <mutex>
#include <thread>

#include "command.cuh"
#include "every.cuh"

static const unsigned TELLINGS = 1024; /* of a launch */
static const unsigned WAVES = 2;       /* of blocks in a launch, at least */

static struct {
    bool is_large = false;
    double pause_us = 0, launch_us = 10000;
} wanted;

/* What the program does over and over. */
class job
{
  public:
    virtual ~job() {}
    virtual void step() = 0;
    virtual void begin() = 0;
    virtual void print() = 0; /* the last member of an object, of what was done since the last time, or the beginning */
    virtual bool is_right() { return true; }
};

class critical : public job
{
  public:
    explicit critical(struct program *program) : program(program)
    {
        int highest;
        CUDA(cudaDeviceGetStreamPriorityRange(nullptr, &highest));
        CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
        round();
        for (unsigned phase = 0; !wanted.is_large && phase < program->nr_phases; phase++) {
            program->loops(phase);
        }
        first_is_right = wanted.is_large || program->agrees();
    }

    void step() override
    {
        double pause_us = wanted.pause_us * (0.5 + drawn(&random));
        struct timespec nap = {(time_t)(pause_us / 1e6), (long)(1000 * fmod(pause_us, 1e6))};
        nanosleep(&nap, nullptr);
        double begun_us = now_us();
        round();
        double took_us = now_us() - begun_us;
        std::lock_guard<std::mutex> held(lock);
        times_us.push_back(took_us);
    }

    void begin() override
    {
        std::lock_guard<std::mutex> held(lock);
        times_us.clear();
    }

    void print() override
    {
        std::vector<double> found;
        {
            std::lock_guard<std::mutex> held(lock);
            found.swap(times_us);
        }
        const char *comma = "";
        printf("\"times_us\": [");
        for (double each : found) {
            printf("%s%.1f", comma, each);
            comma = ", ";
        }
        printf("]");
    }

    bool is_right() override { return first_is_right; }

  private:
    void round()
    {
        for (unsigned phase = 0; phase < program->nr_phases; phase++) {
            program->launch(phase, stream);
        }
        CUDA(cudaStreamSynchronize(stream));
    }

    struct program *program;
    cudaStream_t stream;
    std::mutex lock;
    std::vector<double> times_us;
    uint64_t random = 1;
    bool first_is_right;
};

class best_effort : public job
{
  public:
    explicit best_effort(struct program *program) : program(program)
    {
        unsigned long long *memory;
        int multiprocessors;
        CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc(&memory, sizeof(*memory)));
        CUDA(cudaMemset(memory, 0, sizeof(*memory)));
        CUDA(cudaHostAlloc((void **)&telling.heard, sizeof(*telling.heard), cudaHostAllocMapped));
        *telling.heard = 0;
        telling.nr_ended = memory;
        telling.every = 1;
        times = 1 + WAVES * (unsigned)multiprocessors * program->most_each() / program->nr_blocks;
        double took_us;
        step(); /* whatever is made when a kernel is launched first */
        while ((took_us = timed_us()) < wanted.launch_us / 4) {
            times *= 2;
        }
        times = (unsigned)std::max((double)times, times * wanted.launch_us / took_us);
        telling.every = std::max(1u, times * program->nr_blocks / TELLINGS);
    }

    void step() override
    {
        program->launch_repeated(times, telling, stream);
        CUDA(cudaStreamSynchronize(stream));
        nr_launched += (unsigned long long)times * program->nr_blocks;
    }

    void begin() override { nr_told = *telling.heard; }

    void print() override
    {
        unsigned long long now = *telling.heard;
        printf("\"blocks\": %llu", now - nr_told);
        nr_told = now;
    }

    bool is_right() override
    {
        unsigned long long nr_ended;
        CUDA(cudaMemcpy(&nr_ended, telling.nr_ended, sizeof(nr_ended), cudaMemcpyDeviceToHost));
        if (nr_ended != nr_launched) {
            fprintf(stderr, "%s: %llu blocks were launched, and %llu ran\n", program->name.c_str(), nr_launched,
                    nr_ended);
            return false;
        }
        if (!wanted.is_large) {
            program->loops(0);
        }
        return wanted.is_large || program->agrees();
    }

  private:
    double timed_us()
    {
        double begun_us = now_us();
        step();
        return now_us() - begun_us;
    }

    struct program *program;
    struct telling telling;
    cudaStream_t stream;
    unsigned times;
    unsigned long long nr_told = 0, nr_launched = 0;
};

/* A thread that steps while it is to. */
class loop
{
  public:
    explicit loop(job *job) : does(job), thread([this] { run(); }) {}

    ~loop()
    {
        {
            std::lock_guard<std::mutex> held(lock);
            is_over = true;
        }
        changed.notify_all();
        thread.join();
    }

    void work()
    {
        {
            std::lock_guard<std::mutex> held(lock);
            is_wanted = true;
        }
        changed.notify_all();
    }

    /* Returns when the step has ended. */
    void rest()
    {
        std::unique_lock<std::mutex> held(lock);
        is_wanted = false;
        changed.wait(held, [this] { return !is_busy; });
    }

  private:
    void run()
    {
        std::unique_lock<std::mutex> held(lock);
        for (;;) {
            changed.wait(held, [this] { return is_wanted || is_over; });
            if (is_over) {
                return;
            }
            is_busy = true;
            held.unlock();
            does->step();
            held.lock();
            is_busy = false;
            changed.notify_all();
        }
    }

    job *does;
    std::mutex lock;
    std::condition_variable changed;
    bool is_wanted = false, is_busy = false, is_over = false;
    std::thread thread; /* last: it uses the others */
};

__global__ void stray(unsigned *nowhere)
{
    *nowhere = 1;
}

__global__ void endless(const volatile unsigned *word)
{
    while (*word == 0) {
    }
}

static void obey(job *job)
{
    loop loop(job);
    std::string word;
    double begun_us = now_us();
    auto tell = [&] {
        double now = now_us();
        printf("{\"seconds\": %.6f, ", (now - begun_us) / 1e6);
        job->print();
        printf("}\n");
        fflush(stdout);
        begun_us = now;
    };
    printf("ready\n");
    fflush(stdout);
    while (std::getline(std::cin, word)) {
        if (word == "work") {
            job->begin();
            begun_us = now_us();
            loop.work();
        } else if (word == "look") {
            tell();
        } else if (word == "rest") {
            tell();
            loop.rest();
        } else if (word == "fault") {
            stray<<<1, 1>>>((unsigned *)16);
            CUDA(cudaDeviceSynchronize());
        } else if (word == "hang") {
            unsigned *zero;
            CUDA(cudaMalloc(&zero, sizeof(*zero)));
            CUDA(cudaMemset(zero, 0, sizeof(*zero)));
            endless<<<1, 1>>>(zero);
            CUDA(cudaDeviceSynchronize());
        } else {
            fprintf(stderr, "pair is told to work, to look, to rest, to fault or to hang, not %s\n", word.c_str());
            exit(2);
        }
    }
    loop.rest();
}

static void usage(void)
{
    fprintf(stderr, "pair critical NAME [--large] [--pause-us US]\npair best-effort NAME [--large] [--launch-us US]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    const std::string role = argc > 2 ? argv[1] : "";
    if (role != "critical" && role != "best-effort") {
        usage();
    }
    for (int at = 3; at < argc; at++) {
        if (strcmp(argv[at], "--large") == 0) {
            wanted.is_large = true;
        } else if (at + 1 < argc && strcmp(argv[at], role == "critical" ? "--pause-us" : "--launch-us") == 0) {
            (role == "critical" ? wanted.pause_us : wanted.launch_us) = number_of(argv[at + 1], 0, usage);
            at++;
        } else {
            usage();
        }
    }
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    struct program *program = program_called(argv[2], wanted.is_large);
    std::unique_ptr<job> job;
    if (role == "critical") {
        job.reset(new critical(program));
    } else {
        job.reset(new best_effort(program));
    }
    obey(job.get());
    return job->is_right() ? 0 : 1;
}
