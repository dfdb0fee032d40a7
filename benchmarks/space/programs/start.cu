/*
 * How soon a critical program's kernel has begun and ended beside another process' blocks, for one way of sharing.
 *
 *   start WAY [--blocks US,...] [--rounds NR] [--kernel-us US] [--grid-us US]
 *
 *   plain     best effort launches short blocks one grid after the other; who shares the GPU how is the driver's business
 *   low       the same, as an MPS client of low priority
 *   part      the same, with half of the threads (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)
 *   green     the same, on a stream of a green context of half the multiprocessors
 *   half      best effort runs persistently on the other half of the multiprocessors
 *   word      best effort runs persistently on all, and gives all up on a word that the critical program writes
 *
 * The process forks before it calls CUDA: two processes, of which the one forked is best effort, and both are MPS's
 * clients where the environment says so. They share a page of device memory, passed as a descriptor, with the split
 * word in it. In a round the critical program launches one kernel, a block on each multiprocessor, and waits for its
 * end; with `word` it writes the word in front of it and behind it, too.
 *
 * Prints a line of JSON for each length of best effort's blocks; 0 is alone. kept: best effort's rate beside the
 * rounds, over its own before.
 */
#include <cerrno>
#include <cstring>
#include <cuda.h>
#include <iterator>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.cuh"
#include "spin.cuh"

static const char *const WAYS[] = {"plain", "low", "part", "green", "half", "word"};

static const double SETTLING_US = 50000; /* before best effort's own rate is taken, and what it is taken over */
static const double BEGIN_US = 300;      /* the longest time until blocks of a launch are counted */

static struct {
    std::string way;
    std::vector<double> blocks_us = {0, 5, 20, 100, 500};
    unsigned rounds = 300;
    double kernel_us = 10, grid_us = 2000; /* of the critical kernel, and of a grid of short blocks */
} wanted;

/* The page that both have. */
struct page {
    unsigned long long counter;
    unsigned live[MOST_MULTIPROCESSORS], split;
};

/* Calls a function of the driver's, which this program is not linked with. */
#define DRIVER(name, version, ...)                                                                                     \
    do {                                                                                                               \
        void *driver_found = nullptr;                                                                                  \
        cudaDriverEntryPointQueryResult driver_query;                                                                  \
        CUDA(cudaGetDriverEntryPointByVersion(#name, &driver_found, version, cudaEnableDefault, &driver_query));       \
        CUresult driver_result = driver_found ? ((decltype(&name))driver_found)(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;   \
        if (driver_result != CUDA_SUCCESS) {                                                                           \
            fprintf(stderr, "%s gave %d\n", #name, (int)driver_result);                                                \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static CUmemAllocationProp page_properties(void)
{
    CUmemAllocationProp found = {};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return found;
}

static struct page *mapped(CUmemGenericAllocationHandle handle, size_t nr_bytes)
{
    CUdeviceptr at;
    CUmemAccessDesc access = {page_properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cuMemAddressReserve, 10020, &at, nr_bytes, 0, 0, 0);
    DRIVER(cuMemMap, 10020, at, nr_bytes, 0, handle, 0);
    DRIVER(cuMemSetAccess, 10020, at, nr_bytes, &access, 1);
    return (struct page *)at;
}

static size_t page_bytes(void)
{
    size_t found;
    CUmemAllocationProp properties = page_properties();
    DRIVER(cuMemGetAllocationGranularity, 10020, &found, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return found;
}

/* With the page's descriptor in it, or without: everything else that is said is a number. */
static void say(int socket, double number, int descriptor = -1)
{
    struct iovec part = {&number, sizeof(number)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {};
    struct msghdr message = {nullptr, 0, &part, 1, nullptr, 0, 0};
    if (descriptor >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &descriptor, sizeof(int));
    }
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != (ssize_t)sizeof(number)) {
        exit(2); /* the other process is gone, and has said why */
    }
}

/* False where nothing has been said yet; without MSG_DONTWAIT this waits. */
static bool hears(int socket, double *number, int *descriptor = nullptr, int flags = 0)
{
    struct iovec part = {number, sizeof(*number)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {};
    struct msghdr message = {nullptr, 0, &part, 1, &control, sizeof(control), 0};
    ssize_t got = recvmsg(socket, &message, flags);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return false;
    }
    if (got != (ssize_t)sizeof(*number)) {
        exit(2);
    }
    if (descriptor && message.msg_controllen >= sizeof(control.head)) {
        memcpy(descriptor, CMSG_DATA(&control.head), sizeof(int));
    }
    return true;
}

/* Of half of the multiprocessors. */
static cudaStream_t green_stream(void)
{
    CUdevResource all, half;
    unsigned nr_groups = 1;
    CUdevResourceDesc description;
    CUgreenCtx context;
    CUstream stream;
    DRIVER(cuDeviceGetDevResource, 12040, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    DRIVER(cuDevSmResourceSplitByCount, 12040, &half, &nr_groups, &all, nullptr, 0, all.sm.smCount / 2);
    DRIVER(cuDevResourceGenerateDesc, 12040, &description, &half, 1);
    DRIVER(cuGreenCtxCreate, 12040, &context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    DRIVER(cuGreenCtxStreamCreate, 12050, &stream, context, CU_STREAM_NON_BLOCKING, 0);
    return (cudaStream_t)stream;
}

/* The best-effort process. */
class lasting
{
  public:
    explicit lasting(struct page *page) : page(page)
    {
        int multiprocessors;
        CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
        nr_multiprocessors = (unsigned)multiprocessors;
        CUDA(cudaStreamCreateWithFlags(&words, cudaStreamNonBlocking));
        for (cudaStream_t &lane : lanes) {
            CUDA(cudaStreamCreateWithFlags(&lane, cudaStreamNonBlocking));
        }
        if (wanted.way == "green") {
            lanes[0] = green_stream();
        }
        for (cudaEvent_t &event : events) {
            CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        }
        CUDA(cudaMemset(page, 0, sizeof(*page)));
        CUDA(cudaMallocHost(&host, sizeof(*host)));
        CUDA(cudaDeviceSynchronize());
    }

    /* Works on blocks of that length until the critical program speaks. Returns which part of its own rate it kept. */
    double run(double block_us, int socket)
    {
        view = {(unsigned long long)(1000 * block_us), is_persistent() ? nullptr : &page->counter};
        tell(0, 0);
        work_for(SETTLING_US, block_us);
        unsigned long long first = count();
        double counted_us = now_us(), heard;
        work_for(SETTLING_US, block_us);
        double alone = (double)(count() - first) / (now_us() - counted_us);
        if (wanted.way == "half") {
            tell(nr_multiprocessors / 2, MOST_EACH);
        }
        say(socket, 0);
        first = count();
        counted_us = now_us();
        while (!hears(socket, &heard, nullptr, MSG_DONTWAIT)) {
            work(block_us);
        }
        double kept = (double)(count() - first) / (now_us() - counted_us) / alone;
        tell(nr_multiprocessors, MOST_EACH);
        CUDA(cudaDeviceSynchronize());
        return kept;
    }

  private:
    bool is_persistent() const { return wanted.way == "half" || wanted.way == "word"; }

    void work_for(double us, double block_us)
    {
        for (double begun_us = now_us(); now_us() - begun_us < us;) {
            work(block_us);
        }
    }

    void work(double block_us)
    {
        if (is_persistent()) {
            take_back();
            return;
        }
        unsigned waves = (unsigned)std::max(1.0, wanted.grid_us / block_us);
        CUDA(cudaEventSynchronize(events[at]));
        plain<<<waves * nr_multiprocessors * MOST_EACH, THREADS, 0, lanes[0]>>>(view, 0);
        CUDA(cudaEventRecord(events[at], lanes[0]));
        at = (at + 1) % (sizeof(events) / sizeof(*events));
        CUDA(cudaGetLastError());
    }

    /* Launches as many blocks as have left, where all may stay. Others may have stayed: a block looks only when one
     * ends. */
    void take_back()
    {
        unsigned nr = nr_missing();
        const auto is_idle = [](cudaStream_t lane) { return cudaStreamQuery(lane) == cudaSuccess; };
        cudaStream_t *lane = std::find_if(std::begin(lanes), std::end(lanes), is_idle);
        if (nr == 0 || lane == std::end(lanes)) {
            return;
        }
        struct giving giving = {&page->counter, NO_NUMBER, page->live, &page->split, MOST_EACH, 1};
        persistent<<<nr, THREADS, 0, *lane>>>(view, giving);
        CUDA(cudaGetLastError());
        for (double begun_us = now_us(); nr_missing() > 0 && now_us() - begun_us < BEGIN_US;) {
        }
    }

    /* None while a split stands. */
    unsigned nr_missing()
    {
        CUDA(cudaMemcpyAsync(host, page, sizeof(*page), cudaMemcpyDeviceToHost, words));
        CUDA(cudaStreamSynchronize(words));
        unsigned most = nr_multiprocessors * MOST_EACH, live = 0;
        for (unsigned each : host->live) {
            live += each;
        }
        return host->split || live > most ? 0 : most - live;
    }

    unsigned long long count()
    {
        CUDA(cudaMemcpyAsync(&host->counter, &page->counter, sizeof(host->counter), cudaMemcpyDeviceToHost, words));
        CUDA(cudaStreamSynchronize(words));
        return host->counter;
    }

    void tell(unsigned n, unsigned k)
    {
        host->split = k << 16 | n;
        CUDA(cudaMemcpyAsync(&page->split, &host->split, sizeof(host->split), cudaMemcpyHostToDevice, words));
        CUDA(cudaStreamSynchronize(words));
    }

    struct page *page, *host;
    struct spin_view view;
    unsigned nr_multiprocessors, at = 0;
    cudaEvent_t events[2];
    cudaStream_t lanes[16], words; /* blocks that are taken back run beside those that stayed */
};

static void best_effort(int socket)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = page_properties();
    int descriptor;
    CUDA(cudaFree(nullptr));
    size_t nr_bytes = page_bytes();
    DRIVER(cuMemCreate, 10020, &handle, nr_bytes, &properties, 0);
    DRIVER(cuMemExportToShareableHandle, 10020, &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    lasting lasting(mapped(handle, nr_bytes));
    say(socket, 0, descriptor);
    for (double block_us; hears(socket, &block_us) && block_us > 0;) {
        say(socket, lasting.run(block_us, socket));
    }
}

/* One after the other, with pauses of 1 to 3 ms between. Returns their times. */
static std::vector<double> rounds(const struct page *page)
{
    static cudaStream_t stream = nullptr;
    int multiprocessors, highest;
    CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    if (!stream) {
        CUDA(cudaDeviceGetStreamPriorityRange(nullptr, &highest));
        CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
    }
    struct spin_view view = {(unsigned long long)(1000 * wanted.kernel_us), nullptr};
    const CUdeviceptr word = (CUdeviceptr)&page->split;
    const unsigned untimed = std::min(10u, wanted.rounds);
    std::vector<double> found;
    uint64_t random = 1;
    for (unsigned round = 0; round < wanted.rounds + untimed; round++) {
        double pause_us = 1000 + 2000 * drawn(&random), begun_us = now_us();
        while (now_us() - begun_us < pause_us) {
        }
        begun_us = now_us();
        if (wanted.way == "word") {
            DRIVER(cuStreamWriteValue32, 12000, (CUstream)stream, word, MOST_EACH << 16 | 0xffff, 0);
        }
        plain<<<multiprocessors, THREADS, 0, stream>>>(view, 0);
        if (wanted.way == "word") {
            DRIVER(cuStreamWriteValue32, 12000, (CUstream)stream, word, 0, 0);
        }
        CUDA(cudaStreamSynchronize(stream));
        if (round >= untimed) {
            found.push_back(now_us() - begun_us);
        }
    }
    return found;
}

static void critical(int socket)
{
    double heard, kept = 1;
    int descriptor = -1;
    CUDA(cudaFree(nullptr));
    hears(socket, &heard, &descriptor);
    CUmemGenericAllocationHandle handle;
    DRIVER(cuMemImportFromShareableHandle, 10020, &handle, (void *)(uintptr_t)descriptor,
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const struct page *page = mapped(handle, page_bytes());
    for (double block_us : wanted.blocks_us) {
        if (block_us > 0) {
            say(socket, block_us);
            hears(socket, &heard);
        }
        std::vector<double> all = rounds(page);
        if (block_us > 0) {
            say(socket, 0);
            hears(socket, &kept);
        }
        printf("{\"way\": \"%s\", \"block_us\": %g, \"p50_us\": %.2f, \"p99_us\": %.2f, \"kept\": %.3f}\n",
               wanted.way.c_str(), block_us, percentile(all, 0.5), percentile(all, 0.99), kept);
        fflush(stdout);
    }
    say(socket, 0);
}

static void usage(void)
{
    fprintf(stderr, "start plain | low | part | green | half | word [--blocks US,...] [--rounds NR] [--kernel-us US] "
                    "[--grid-us US]\n");
    exit(2);
}

static void parse(int argc, char **argv)
{
    if (argc < 2 || argc % 2 || std::find(std::begin(WAYS), std::end(WAYS), std::string(argv[1])) == std::end(WAYS)) {
        usage();
    }
    wanted.way = argv[1];
    for (int at = 2; at < argc; at += 2) {
        const std::string option = argv[at];
        if (option == "--blocks") {
            wanted.blocks_us.clear();
            for (const std::string &us : parts_of(argv[at + 1], ',')) {
                wanted.blocks_us.push_back(number_of(us.c_str(), 0, usage));
            }
        } else if (option == "--rounds") {
            wanted.rounds = (unsigned)number_of(argv[at + 1], 1, usage);
        } else if (option == "--grid-us") {
            wanted.grid_us = number_of(argv[at + 1], 1, usage);
        } else if (option == "--kernel-us") {
            wanted.kernel_us = number_of(argv[at + 1], 1, usage);
        } else {
            usage();
        }
    }
}

/* Exit status: 0, or 2 for a wrong command line or a refusal of CUDA's. */
int main(int argc, char **argv)
{
    parse(argc, argv);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    int sockets[2], status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets)) {
        perror("socketpair");
        return 2;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 2;
    }
    close(sockets[child != 0]);
    if (child == 0) {
        if (wanted.way == "low") {
            setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
        } else if (wanted.way == "part") {
            setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
        }
        best_effort(sockets[1]);
        return 0;
    }
    critical(sockets[0]);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 2;
}
