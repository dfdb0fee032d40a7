/* A program that runs persistently on a stream, its split, and how far it has come. */
#ifndef BENCHMARKS_SPACE_RUNNER_CUH
#define BENCHMARKS_SPACE_RUNNER_CUH

#include "command.cuh"
#include "program.cuh"

static const double SETTLES_US = 20000; /* the longest wait until as many blocks are there as the split says */

class runner
{
  public:
    /* `numbers`: after how many a launch ends, for devices on which no other kernel begins before; 0: it does not. */
    runner(unsigned multiprocessors, unsigned long long numbers) : multiprocessors(multiprocessors), numbers(numbers)
    {
        int lowest, highest;
        CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
        CUDA(cudaStreamCreateWithPriority(&kernels, cudaStreamNonBlocking, lowest));
        CUDA(cudaStreamCreateWithPriority(&words, cudaStreamNonBlocking, highest));
        CUDA(cudaMalloc(&device, sizeof(*device)));
        CUDA(cudaMallocHost(&host, sizeof(*host)));
        CUDA(cudaMemset(device, 0, sizeof(*device)));
        CUDA(cudaDeviceSynchronize());
    }

    /* All blocks of `what`, with the whole device. Only when none runs. */
    void begin(struct program *what)
    {
        begin(what, multiprocessors * what->most_each());
        settle();
    }

    /* So many of its blocks, wherever they find a place. */
    void begin(struct program *what, unsigned nr)
    {
        running = what;
        most_each = what->most_each();
        nr_launched = nr;
        split(0, 0);
        launch();
    }

    /* Until the launch has ended by itself. */
    void wait() { CUDA(cudaStreamSynchronize(kernels)); }

    /* All blocks leave. */
    void end()
    {
        split(multiprocessors, MOST_EACH);
        wait();
        running = nullptr;
    }

    void split(unsigned n, unsigned k)
    {
        given = {n, k};
        host->split = k << 16 | n;
        CUDA(cudaMemcpyAsync(&device->split, &host->split, sizeof(host->split), cudaMemcpyHostToDevice, words));
        CUDA(cudaStreamSynchronize(words));
    }

    /* Waits until as many blocks are there as the split says. False when they do not come, or not go. */
    bool settle()
    {
        double begun_us = now_us();
        do {
            if (numbers || live() == wanted()) {
                return true;
            }
        } while (now_us() - begun_us < SETTLES_US);
        return false;
    }

    /* Launches again where the numbers of the last launch have ended, and anybody may stay. To be called again and
     * again. */
    void keep_going()
    {
        if (numbers && running && wanted() > 0 && cudaStreamQuery(kernels) == cudaSuccess) {
            launch();
        }
    }

    /* How many numbers have been taken since the beginning of all. */
    unsigned long long count()
    {
        CUDA(cudaMemcpyAsync(&host->counter, &device->counter, sizeof(host->counter), cudaMemcpyDeviceToHost, words));
        CUDA(cudaStreamSynchronize(words));
        return host->counter;
    }

    unsigned wanted() const
    {
        unsigned left = given.k < most_each ? most_each - given.k : 0;
        return (multiprocessors - given.n) * most_each + given.n * left;
    }

    unsigned live()
    {
        CUDA(cudaMemcpyAsync(host->live, device->live, sizeof(host->live), cudaMemcpyDeviceToHost, words));
        CUDA(cudaStreamSynchronize(words));
        unsigned sum = 0;
        for (unsigned place = 0; place < MOST_MULTIPROCESSORS; place++) {
            sum += host->live[place];
        }
        return sum;
    }

    unsigned most_each = 0;

  private:
    struct state {
        unsigned long long counter;
        unsigned live[MOST_MULTIPROCESSORS], split;
    };

    void launch()
    {
        unsigned long long limit = numbers ? count() + numbers : NO_NUMBER;
        struct giving giving = {&device->counter, limit, device->live, &device->split, most_each, running->nr_blocks};
        running->launch_persistent(giving, nr_launched, kernels);
    }

    unsigned multiprocessors, nr_launched = 0;
    unsigned long long numbers;
    struct {
        unsigned n, k;
    } given = {0, 0};
    struct program *running = nullptr;
    struct state *device, *host;
    cudaStream_t kernels, words;
};

#endif
