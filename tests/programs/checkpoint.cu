/*
 * A process is taken off its GPUs and put back: onto all of them in turn where it sees several, else where it was. All
 * that it had stays, at its address: memory of every kind, a variable whose address it keeps, a texture, streams,
 * events and the time between them, an instantiated graph; and a thread that launches all the time notices nothing.
 */
#include <atomic>
#include <cmath>
#include <thread>
#include <unistd.h>
#include <vector>

#include "driver_calls.h"

#define NR         (1 << 18)
#define NR_ROUNDS  3
#define TIMEOUT_MS 10000

__device__ int variable[NR];
__device__ int *kept;

__global__ void keep()
{
    kept = variable;
}

/* Each kind of memory counts one up, the variable by the address that was kept. */
__global__ void step(int *allocated, int *mapped, int *pooled, int *pinned)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < NR; i += gridDim.x * blockDim.x) {
        allocated[i]++;
        mapped[i]++;
        pooled[i]++;
        pinned[i]++;
        kept[i]++;
    }
}

__global__ void sum(cudaTextureObject_t texture, int *out)
{
    int total = 0;
    for (int y = 0; y < 16; y++) {
        for (int x = 0; x < 16; x++) {
            total += tex2D<int>(texture, x, y);
        }
    }
    *out = total;
}

__global__ void count(unsigned long long *launches)
{
    ++*launches;
}

static CUdeviceptr map_memory(size_t bytes)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    size_t page = 0;
    OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    bytes = (bytes + page - 1) / page * page;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    OK(cuMemMap(at, bytes, 0, handle, 0));
    OK(cuMemSetAccess(at, bytes, &access, 1));
    OK(cuMemRelease(handle));
    return at;
}

static cudaTextureObject_t make_texture()
{
    std::vector<int> texels(256);
    for (int i = 0; i < 256; i++) {
        texels[i] = i;
    }
    cudaArray_t array;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    CHECK(cudaMallocArray(&array, &format, 16, 16));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), 64, 64, 16, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = {};
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    return texture;
}

/* Every GPU's work goes to the next one. None for a single one: there is nowhere to go. */
static std::vector<CUcheckpointGpuPair> rotation()
{
    int nr = 0;
    OK(cuDeviceGetCount(&nr));
    std::vector<CUcheckpointGpuPair> pairs(nr > 1 ? nr : 0);
    for (int i = 0; i < (int)pairs.size(); i++) {
        OK(cuDeviceGetUuid(&pairs[i].oldUuid, i));
        OK(cuDeviceGetUuid(&pairs[i].newUuid, (i + 1) % nr));
    }
    return pairs;
}

static void move()
{
    std::vector<CUcheckpointGpuPair> pairs = rotation();
    CUcheckpointLockArgs lock = {};
    CUcheckpointRestoreArgs restore = {};
    CUprocessState state;
    lock.timeoutMs = TIMEOUT_MS;
    restore.gpuPairs = pairs.empty() ? nullptr : pairs.data();
    restore.gpuPairsCount = (unsigned int)pairs.size();
    OK(cuCheckpointProcessLock(getpid(), &lock));
    OK(cuCheckpointProcessCheckpoint(getpid(), nullptr));
    OK(cuCheckpointProcessGetState(getpid(), &state));
    printf("checkpointed: %d\n", state == CU_PROCESS_STATE_CHECKPOINTED);
    OK(cuCheckpointProcessRestore(getpid(), &restore));
    OK(cuCheckpointProcessUnlock(getpid(), nullptr));
}

static bool all_are(const int *device, int wanted)
{
    std::vector<int> host(NR);
    CHECK(cudaMemcpy(host.data(), device, NR * sizeof(int), cudaMemcpyDeviceToHost));
    for (int value : host) {
        if (value != wanted) {
            return false;
        }
    }
    return true;
}

int main()
{
    const size_t bytes = NR * sizeof(int);
    int *allocated, *pooled, *pinned, *total, *address;
    cudaStream_t stream;
    cudaEvent_t first, second;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&allocated, bytes));
    CHECK(cudaMallocAsync(&pooled, bytes, stream));
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMallocHost(&total, sizeof(*total)));
    int *mapped = (int *)map_memory(bytes);
    for (int *memory : {allocated, pooled, pinned, mapped}) {
        CHECK(cudaMemsetAsync(memory, 0, bytes, stream));
    }
    keep<<<1, 1, 0, stream>>>();
    const cudaTextureObject_t texture = make_texture();
    CHECK(cudaEventCreate(&first));
    CHECK(cudaEventCreate(&second));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    step<<<64, 256, 0, stream>>>(allocated, mapped, pooled, pinned);
    sum<<<1, 1, 0, stream>>>(texture, total);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventRecord(first, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(second, stream));
    CHECK(cudaStreamSynchronize(stream));
    float before = 0, after = 0;
    CHECK(cudaEventElapsedTime(&before, first, second));
    CHECK(cudaGetSymbolAddress((void **)&address, variable));

    unsigned long long *launches, nr_launched = 0;
    std::atomic<bool> goes_on{true};
    CHECK(cudaMalloc(&launches, sizeof(*launches)));
    CHECK(cudaMemset(launches, 0, sizeof(*launches)));
    std::thread launcher([&] {
        cudaStream_t own;
        CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        for (; goes_on; nr_launched++) {
            count<<<1, 1, 0, own>>>(launches);
            CHECK(cudaStreamSynchronize(own));
        }
    });

    bool is_right = true;
    for (int round = 1; round <= NR_ROUNDS; round++) {
        move();
        *total = 0;
        CHECK(cudaEventElapsedTime(&after, first, second));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        int *variable_now;
        CHECK(cudaGetSymbolAddress((void **)&variable_now, variable));
        const bool are_right[] = {all_are(allocated, round + 1), all_are(mapped, round + 1),
                                  all_are(pooled, round + 1),    all_are(pinned, round + 1),
                                  all_are(address, round + 1),   variable_now == address,
                                  *total == 255 * 128,           std::fabs(after - before) < 0.001f};
        for (bool one : are_right) {
            printf("%d", one);
            is_right = is_right && one;
        }
        printf("\n");
    }
    goes_on = false;
    launcher.join();
    unsigned long long nr_counted = 0;
    CHECK(cudaMemcpy(&nr_counted, launches, sizeof(nr_counted), cudaMemcpyDeviceToHost));
    printf("launches: %d\n", nr_counted == nr_launched);
    return verdict(is_right && nr_counted == nr_launched);
}
