// A graph that launches itself on the device until its work is done, and another one last. With an argument it says how
// long its kernels ran, and waits for a line.
#include "check.h"

static const unsigned int NR_ROUNDS = 40;
static const unsigned long long ROUND_NS = 1000000;

struct state {
    unsigned int left, nr_rounds, ended_after;
    int error;
    unsigned long long spun_ns;
};

static __device__ unsigned long long now_ns()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void round_of(state *state, cudaGraphExec_t last)
{
    const unsigned long long begun_ns = now_ns();
    while (now_ns() - begun_ns < ROUND_NS) {
    }
    state->spun_ns += now_ns() - begun_ns;
    state->nr_rounds++;
    const bool is_last = --state->left == 0;
    const cudaError_t error = cudaGraphLaunch(is_last ? last : cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    state->error = error != cudaSuccess ? error : state->error;
}

__global__ void end(state *state)
{
    state->ended_after = state->nr_rounds;
}

int main(int argc, char **)
{
    state *on_device, found = {};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t rounds, last;
    found.left = NR_ROUNDS;
    CHECK(cudaMalloc(&on_device, sizeof(found)));
    CHECK(cudaMemcpy(on_device, &found, sizeof(found), cudaMemcpyHostToDevice));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    end<<<1, 1, 0, stream>>>(on_device);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&last, graph, cudaGraphInstantiateFlagDeviceLaunch));
    CHECK(cudaGraphUpload(last, stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    round_of<<<1, 1, 0, stream>>>(on_device, last);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&rounds, graph, cudaGraphInstantiateFlagDeviceLaunch));
    CHECK(cudaGraphLaunch(rounds, stream));
    CHECK(cudaMemcpyAsync(&found, on_device, sizeof(found), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%u rounds, ended after %u, %u left, error %d\n", found.nr_rounds, found.ended_after, found.left,
           found.error);
    if (argc > 1) {
        printf("spun %llu ns\n", found.spun_ns);
        getchar();
    }
    return verdict(found.nr_rounds == NR_ROUNDS && found.ended_after == NR_ROUNDS && found.left == 0 &&
                   found.error == 0);
}
