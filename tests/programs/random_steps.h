/*
 * Random work against a model. Each seed makes memory of every kind, and for so many steps copies, sets, kernels, host
 * functions, graphs, looks and writes of the host's, in four streams that wait for each other by events. What each
 * buffer must hold is worked out beside it; a byte that is wrong, or a call that fails, ends the program with the
 * seed, the step and what was done to that buffer. Prints how often what was done; all of it must have been.
 *
 * Usage: random_work [SEED [NR_SEEDS [NR_STEPS]]]
 */
#ifndef TESTS_PROGRAMS_RANDOM_STEPS_H
#define TESTS_PROGRAMS_RANDOM_STEPS_H

#include "random_buffers.h"

__global__ void add(uint8_t *to, size_t nr, uint8_t what)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        to[i] = to[i] * 3 + what + (uint8_t)i;
    }
}

__global__ void mix(uint8_t *to, const uint8_t *from, size_t nr)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        to[i] ^= from[i] + 1;
    }
}

#ifdef NOTHING_BINDS
static const size_t nr_kinds = IN_ORDER, nr_things = 12;
static const bool has_graphs = false;
#else
static const size_t nr_kinds = VARIABLE, nr_things = 14;
static const bool has_graphs = true;
static const size_t nr_constants = 1024, nr_variables = 4096, nr_managed = 8192;
__constant__ uint8_t constants[nr_constants];
__device__ uint8_t variables[nr_variables];
__managed__ uint8_t managed[nr_managed];

__global__ void mix_constants(uint8_t *to, size_t nr)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        to[i] ^= constants[i % nr_constants];
    }
}
#endif

/* Of ordinary memory: a copy that is not captured has it when it returns, and the program may then change it. */
static void copy_from_host(buffer &to, size_t at, size_t nr, cudaStream_t stream)
{
    now.sources.emplace_back(new bytes(some(nr)));
    bytes &from = *now.sources.back();
    CHECK(cudaMemcpyAsync(to.device + at, from.data(), nr, cudaMemcpyHostToDevice, stream));
    change("copies from the host", to, [&to, at, from] { std::copy(from.begin(), from.end(), &to.wanted[at]); });
    if (!now.is_capturing) {
        std::fill(from.begin(), from.end(), 0xEE);
    }
}

static void copy_rows(buffer &to, cudaStream_t stream)
{
    const size_t pitch = 1 + below(std::min<size_t>(to.wanted.size(), 300)), width = 1 + below(pitch);
    const size_t nr = 1 + below(std::min<size_t>(to.wanted.size() / pitch, 50)), from_pitch = width + below(9);
    now.sources.emplace_back(new bytes(some(from_pitch * nr)));
    const bytes &from = *now.sources.back();
    CHECK(cudaMemcpy2DAsync(to.device, pitch, from.data(), from_pitch, width, nr, cudaMemcpyHostToDevice, stream));
    change("copies of rows", to, [&to, &from, pitch, from_pitch, width, nr] {
        for (size_t row = 0; row < nr; row++) {
            std::copy_n(&from[row * from_pitch], width, &to.wanted[row * pitch]);
        }
    });
}

/* A function of the host's, which may write what is pinned. */
static void call(buffer &to, cudaStream_t stream)
{
    if (to.kind == PINNED || to.kind == REGISTERED) {
        const cudaHostFn_t function = [](void *told) {
            const buffer &to = *(buffer *)told;
            std::for_each(to.host, to.host + to.wanted.size(), [](uint8_t &value) { value += 7; });
        };
        CHECK(cudaLaunchHostFunc(stream, function, &to));
        change("functions", to,
               [&to] { std::for_each(to.wanted.begin(), to.wanted.end(), [](uint8_t &value) { value += 7; }); });
    }
}

/* Something of `from`, from wherever it begins, as far as there is room. */
static void copy(buffer &to, size_t at, const buffer &from, cudaStream_t stream)
{
    const size_t there = below(from.wanted.size());
    const size_t nr = std::min(to.wanted.size() - at, from.wanted.size() - there);
    CHECK(cudaMemcpyAsync(to.device + at, from.device + there, nr, cudaMemcpyDefault, stream));
    change("copies", to, [&to, at, &from, there, nr] { std::copy_n(&from.wanted[there], nr, &to.wanted[at]); });
}

static void mix_two(buffer &to, const buffer &from, cudaStream_t stream)
{
    const size_t nr = std::min(to.wanted.size(), from.wanted.size());
    mix<<<1 + below(40), 128, 0, stream>>>(to.device, from.device, nr);
    CHECK(cudaGetLastError());
    change("mixtures", to, [&to, &from, nr] {
        for (size_t i = 0; i < nr; i++) {
            to.wanted[i] ^= from.wanted[i] + 1;
        }
    });
}

/* To a part of some buffer. Nothing, where a capture cannot or there is nothing to do. */
static void do_one(size_t which)
{
    buffer &to = any(), &from = any();
    const cudaStream_t stream = now.streams[which];
    const size_t at = once_in(3) ? 0 : below(to.wanted.size());
    const size_t nr = once_in(3) ? to.wanted.size() - at : 1 + below(to.wanted.size() - at);
    const uint8_t what = (uint8_t)below(256);
    if (!may_use(to, which)) {
        return;
    }
    switch (below(9)) {
    case 0:
        CHECK(cudaMemsetAsync(to.device + at, what, nr, stream));
        change("sets", to, [&to, at, nr, what] { memset(&to.wanted[at], what, nr); });
        break;
    case 1:
        copy_from_host(to, at, nr, stream);
        break;
    case 2:
        copy_rows(to, stream);
        break;
    case 3:
        call(to, stream);
        break;
    case 4:
        if (&from != &to && may_use(from, which)) {
            copy(to, at, from, stream);
        }
        break;
    case 5:
        if (&from != &to && may_use(from, which)) {
            mix_two(to, from, stream);
        }
        break;
#ifndef NOTHING_BINDS
    case 6:
        mix_constants<<<1 + below(40), 128, 0, stream>>>(to.device, to.wanted.size());
        CHECK(cudaGetLastError());
        change("mixtures of constants", to, [&to] {
            for (size_t i = 0; i < to.wanted.size(); i++) {
                to.wanted[i] ^= now.constants[i % nr_constants];
            }
        });
        break;
#endif
    default:
        add<<<1 + below(40), 1 + below(256), 0, stream>>>(to.device + at, nr, what);
        CHECK(cudaGetLastError());
        change("additions", to, [&to, at, nr, what] {
            for (size_t i = 0; i < nr; i++) {
                to.wanted[at + i] = to.wanted[at + i] * 3 + what + (uint8_t)i;
            }
        });
    }
}

static void launch_graph(size_t which)
{
    const cudaStream_t stream = now.streams[which];
    for (const std::unique_ptr<buffer> &each : now.buffers) {
        if (once_in(2)) {
            may_use(*each, which);
        }
    }
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, once_in(2) ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
    now.is_capturing = true;
    for (uint64_t left = 1 + below(5); left > 0; left--) {
        do_one(which);
    }
    now.is_capturing = false;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (uint64_t left = 1 + below(3); left > 0; left--) {
        CHECK(cudaGraphLaunch(executable, stream));
        std::for_each(now.captured.begin(), now.captured.end(), [](const std::function<void()> &model) { model(); });
        nr_done["launches of graphs"]++;
    }
    now.captured.clear();
    CHECK(once_in(2) ? cudaStreamSynchronize(stream) : cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

static void write_on_host(buffer &to)
{
    if (to.is_on_host()) {
        CHECK(cudaStreamSynchronize(now.streams[to.stream]));
        const size_t at = below(to.wanted.size());
        const bytes written = some(std::min<size_t>(500, to.wanted.size() - at));
        std::copy(written.begin(), written.end(), to.host + at);
        change("writes", to, [&to, at, &written] { std::copy(written.begin(), written.end(), &to.wanted[at]); });
    }
}

static void begin()
{
    now.streams.push_back(once_in(2) ? nullptr : cudaStreamPerThread);
    for (int i = 1; i < 4; i++) {
        now.streams.push_back(nullptr);
        CHECK(cudaStreamCreateWithFlags(&now.streams.back(), once_in(2) ? cudaStreamNonBlocking : 0));
    }
    for (int i = 0; i < 6; i++) {
        now.events.push_back(nullptr);
        CHECK(cudaEventCreateWithFlags(&now.events.back(), once_in(2) ? cudaEventDisableTiming : 0));
    }
#ifdef NOTHING_BINDS
    make(ALLOCATED, 5000, 1);
    make(PINNED, 300, 2);
#else
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    uint64_t kept_bytes = once_in(2) ? UINT64_MAX : 1 << 20;
    CHECK(cudaMemPoolCreate(&now.pool, &properties));
    CHECK(cudaMemPoolSetAttribute(now.pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes));
    now.constants = some(nr_constants);
    CHECK(cudaMemcpyToSymbol(constants, now.constants.data(), nr_constants));
    uint8_t *address;
    CHECK(cudaGetSymbolAddress((void **)&address, variables));
    CHECK(cudaMemset(address, 0, nr_variables));
    now.buffers.emplace_back(new buffer{VARIABLE, 0, bytes(nr_variables), address, address});
    memset(managed, 0, nr_managed);
    now.buffers.emplace_back(new buffer{MANAGED, 0, bytes(nr_managed), managed, managed});
#endif
    CHECK(cudaDeviceSynchronize());
}

static void run(int nr_steps)
{
    const size_t most = 24, nr_always = now.buffers.size();
    for (now.step = 1; now.step <= nr_steps; now.step++) {
        const size_t which = below(now.streams.size());
        const uint64_t what = below(12);
        if (what <= 1 && now.buffers.size() < most) {
            make((enum kind)below(nr_kinds), some_size(), which);
        } else if (what == 2 && now.buffers.size() > nr_always) {
            drop(nr_always + below(now.buffers.size() - nr_always));
        } else if (what == 3) {
            look(any());
        } else if (what == 4) {
            CHECK(once_in(3) ? cudaDeviceSynchronize() : cudaStreamSynchronize(now.streams[which]));
            write_on_host(any());
        } else if (what == 5 && has_graphs && which != 0) {
            launch_graph(which);
        } else {
            do_one(which);
        }
    }
    std::for_each(now.buffers.begin(), now.buffers.end(), [](const std::unique_ptr<buffer> &each) { look(*each); });
    while (now.buffers.size() > nr_always) {
        drop(nr_always);
    }
}

static void end()
{
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 1; i < now.streams.size(); i++) {
        CHECK(cudaStreamDestroy(now.streams[i]));
    }
    for (cudaEvent_t event : now.events) {
        CHECK(cudaEventDestroy(event));
    }
    CHECK(now.pool ? cudaMemPoolDestroy(now.pool) : cudaSuccess);
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t behind = first + (argc > 2 ? strtoull(argv[2], NULL, 10) : 8);
    const int nr_steps = argc > 3 ? atoi(argv[3]) : 150;
    atexit([] {
        if (now.seed) {
            printf("seed %llu, step %d\n", (unsigned long long)now.seed, now.step);
        }
    });
    for (uint64_t seed = first; seed < behind; seed++) {
        now = {};
        now.seed = seed;
        now.random = seed * 0x9E3779B97F4A7C15 + 1;
        begin();
        run(nr_steps);
        end();
    }
    now.seed = 0;
    for (const auto &[what, nr] : nr_done) {
        printf("%s: %d\n", what.c_str(), nr);
    }
    return verdict(nr_done.size() == nr_things);
}

#endif
