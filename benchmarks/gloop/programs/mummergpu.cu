/*
 * MUMmerGPU of Rodinia on GLoop: many long blocks, then many short ones. Plain each of the two is one launch. Split the
 * first is launched for as many blocks as the device holds at a time and one place of their sequences; by gloop it asks
 * after each place whether to give way, and keeps its place only then.
 */
#include "mummergpu.cuh"

#include "port.cuh"

enum { PACKED_BASES = 32, ONE_WRONG_IN = 32 };

static struct {
    struct mummer loops, device;
    std::vector<struct mummer_place> longest; /* of the device */
    std::vector<uint32_t> matches;
} search;

static size_t nr_matches(void)
{
    return (size_t)search.loops.nr_queries * MUMMER_OFFSETS;
}

static int nr_blocks(void)
{
    return (search.loops.nr_queries + MUMMER_THREADS - 1) / MUMMER_THREADS;
}

static char random_base(uint64_t *random)
{
    return "ACGT"[benchmark_random(random) >> 30];
}

/* The first bases of a suffix as one number, in the order of their letters; what is not there is less than any base. */
static uint64_t packed(const char *bases, int nr)
{
    uint64_t value = 0;
    for (int at = 0; at < PACKED_BASES; at++) {
        value = value << 2 | (at < nr ? strchr("ACGT", bases[at]) - "ACGT" : 0);
    }
    return value;
}

static void sort_suffixes(const char *bases, int nr, int32_t *suffixes)
{
    std::vector<std::pair<uint64_t, int32_t>> keys(nr);
    for (int at = 0; at < nr; at++) {
        keys[at] = {packed(bases + at, nr - at), at};
    }
    std::sort(keys.begin(), keys.end(), [=](const auto &one, const auto &other) {
        return one.first != other.first ? one.first < other.first
                                        : strcmp(bases + one.second, bases + other.second) < 0;
    });
    for (int at = 0; at < nr; at++) {
        suffixes[at] = keys[at].second;
    }
}

/* Pieces of the long sequence, with a wrong base here and there. */
static void generate_queries(const char *bases, char *queries)
{
    uint64_t random = 2;
    for (int query = 0; query < search.loops.nr_queries; query++) {
        const char *piece = bases + benchmark_random(&random) % (search.loops.nr_bases - MUMMER_QUERY);
        for (int at = 0; at < MUMMER_QUERY; at++) {
            bool is_wrong = benchmark_random(&random) % ONE_WRONG_IN == 0;
            queries[(size_t)query * MUMMER_QUERY + at] = is_wrong ? random_base(&random) : piece[at];
        }
    }
}

static void prepare_device(void)
{
    struct mummer *device = &search.device;
    *device = search.loops;
    BENCHMARK_CUDA(cudaMalloc((void **)&device->bases, device->nr_bases + 1));
    BENCHMARK_CUDA(cudaMalloc((void **)&device->suffixes, device->nr_bases * sizeof(int32_t)));
    BENCHMARK_CUDA(cudaMalloc((void **)&device->queries, (size_t)device->nr_queries * MUMMER_QUERY));
    BENCHMARK_CUDA(cudaMalloc(&device->matches, nr_matches() * sizeof(uint32_t)));
    BENCHMARK_CUDA(cudaMalloc(&device->longest, device->nr_queries * sizeof(struct mummer_place)));
}

static double prepare(size_t size)
{
    if (size > MUMMER_MOST_BASES / 2) {
        benchmark_fail("at most %d sequences", MUMMER_MOST_BASES / 2);
    }
    search.loops.nr_queries = (int)size;
    search.loops.nr_bases = (int)std::max<size_t>(2 * size, 4 * MUMMER_QUERY);
    char *bases = (char *)benchmark_allocate(search.loops.nr_bases + 1, 1);
    int32_t *suffixes = (int32_t *)benchmark_allocate(search.loops.nr_bases, sizeof(*suffixes));
    char *queries = (char *)benchmark_allocate(size, MUMMER_QUERY);
    uint64_t random = 1;
    std::generate(bases, bases + search.loops.nr_bases, [&] { return random_base(&random); });
    search.loops.bases = bases;
    sort_suffixes(bases, search.loops.nr_bases, suffixes);
    generate_queries(bases, queries);
    search.loops.suffixes = suffixes;
    search.loops.queries = queries;
    search.loops.matches = (uint32_t *)benchmark_allocate(nr_matches(), sizeof(uint32_t));
    search.loops.longest = (struct mummer_place *)benchmark_allocate(size, sizeof(struct mummer_place));
    search.longest.resize(size);
    search.matches.resize(nr_matches());
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * (double)nr_matches();
}

static void copy_in(const void *to, const void *from, size_t nr_bytes)
{
    BENCHMARK_CUDA(cudaMemcpy((void *)to, from, nr_bytes, cudaMemcpyHostToDevice));
}

static void begin_round(void)
{
    const struct mummer *device = &search.device, *host = &search.loops;
    copy_in(device->bases, host->bases, host->nr_bases + 1);
    copy_in(device->suffixes, host->suffixes, host->nr_bases * sizeof(int32_t));
    copy_in(device->queries, host->queries, (size_t)host->nr_queries * MUMMER_QUERY);
}

static void end_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(search.longest.data(), search.device.longest,
                              search.longest.size() * sizeof(struct mummer_place), cudaMemcpyDeviceToHost));
}

static void fetch(void)
{
    BENCHMARK_CUDA(cudaMemcpy(search.matches.data(), search.device.matches, nr_matches() * sizeof(uint32_t),
                              cudaMemcpyDeviceToHost));
}

static void plain_round(void)
{
    begin_round();
    port_time([] {
        mummer_match_plain<<<nr_blocks(), MUMMER_THREADS>>>(search.device, 0, 0, MUMMER_OFFSETS);
        mummer_print_plain<<<nr_blocks(), MUMMER_THREADS>>>(search.device);
    });
    end_round();
}

static void split_round(void)
{
    begin_round();
    int nr_at_once = port_resident((const void *)mummer_match_plain, MUMMER_THREADS, 0);
    port_time([=] {
        for (int first = 0; first < nr_blocks(); first += nr_at_once) {
            int nr = std::min(nr_at_once, nr_blocks() - first);
            for (int offset = 0; offset < MUMMER_OFFSETS; offset++) {
                mummer_match_plain<<<nr, MUMMER_THREADS>>>(search.device, first, offset, offset + 1);
            }
        }
        mummer_print_plain<<<nr_blocks(), MUMMER_THREADS>>>(search.device);
    });
    end_round();
}

static void launch_on_gloop(void)
{
    struct mummer device = search.device;
    port_host().launch(nr_blocks(), MUMMER_THREADS,
                       [=] __device__(gloop::DeviceLoop<> *loop) { mummer_match_on(loop, device, 0); });
    port_host().launch(nr_blocks(), MUMMER_THREADS, [=] __device__(gloop::DeviceLoop<> *loop) {
        mummer_print_block(device, loop->logicalBlockIdx().x);
    });
}

static void gloop_round(void)
{
    begin_round();
    port_time(launch_on_gloop);
    end_round();
}

static void loops_round(void)
{
    mummer_loops(&search.loops);
}

static int check(char *why, size_t why_size)
{
    if (benchmark_compare_ints("match", (const int32_t *)search.matches.data(), (const int32_t *)search.loops.matches,
                               nr_matches(), why, why_size)) {
        return 1;
    }
    return benchmark_compare_ints("longest", &search.longest[0].length, &search.loops.longest[0].length,
                                  3 * search.longest.size(), why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)search.device.bases));
        BENCHMARK_CUDA(cudaFree((void *)search.device.suffixes));
        BENCHMARK_CUDA(cudaFree((void *)search.device.queries));
        BENCHMARK_CUDA(cudaFree(search.device.matches));
        BENCHMARK_CUDA(cudaFree(search.device.longest));
    }
    free((void *)search.loops.bases);
    free((void *)search.loops.suffixes);
    free((void *)search.loops.queries);
    free(search.loops.matches);
    free(search.loops.longest);
}

int main(int argc, char **argv)
{
    struct port port = {{"mummergpu", "where short sequences match a long one", "Mmatches/s", 0, "short sequences",
                         prepare, NULL, loops_round, fetch, check, NULL, release},
                        512,
                        500000,
                        {plain_round, split_round, gloop_round}};
    return port_main(&port, argc, argv);
}
