/*
 * Hybridsort of Rodinia on GLoop: short blocks that want all shared memory, with the callbacks in global memory, then
 * blocks that merge, with the callbacks in shared memory. The paper's GLoop had one of the two for a whole program.
 * Plain each pass over the values is one launch; split a launch is of as many short blocks as the device holds at a
 * time, or of one tile of each merge; by gloop a merge asks after each tile whether to give way.
 */
#include "hybridsort.cuh"

#include "port.cuh"

enum { VALUES_PER_BUCKET = 4 * SORT_RUN, SAMPLES_PER_BUCKET = 32 };

static struct {
    float *values, *sorted; /* on the host */
    std::vector<float> found, bounds;
    struct sort_keys keys;
    float *spare;     /* on the device, as long as `keys.dealt` */
    unsigned *begins; /* on the device: of buckets */
    std::vector<unsigned> places, host_begins;
    unsigned largest; /* bucket */
    float *result;
} sort;

static double prepare(size_t size)
{
    if (size > 1u << 30) {
        benchmark_fail("at most %u values", 1u << 30);
    }
    struct sort_keys *keys = &sort.keys;
    keys->nr = size;
    keys->nr_buckets = (int)std::min<size_t>(HYBRIDSORT_MOST_BUCKETS, size / VALUES_PER_BUCKET + 1);
    keys->nr_blocks = (int)((size + SORT_DEALT - 1) / SORT_DEALT);
    sort.values = (float *)benchmark_allocate(size, sizeof(float));
    sort.sorted = (float *)benchmark_allocate(size, sizeof(float));
    sort.found.resize(size);
    uint64_t random = 1;
    std::generate(sort.values, sort.values + size, [&] { return benchmark_random_float(&random); });
    sort.places.resize((size_t)keys->nr_buckets * keys->nr_blocks);
    sort.host_begins.resize(keys->nr_buckets + 1);
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaMalloc((void **)&keys->values, size * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&keys->dealt, size * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&sort.spare, size * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc((void **)&keys->bounds, keys->nr_buckets * sizeof(float)));
        BENCHMARK_CUDA(cudaMalloc(&keys->places, sort.places.size() * sizeof(unsigned)));
        BENCHMARK_CUDA(cudaMalloc(&sort.begins, sort.host_begins.size() * sizeof(unsigned)));
    }
    return 1e-6 * (double)size;
}

/* Bounds of buckets, out of a sample. */
static void choose_bounds(void)
{
    std::vector<float> sample((size_t)sort.keys.nr_buckets * SAMPLES_PER_BUCKET);
    uint64_t random = 2;
    for (float &value : sample) {
        value = sort.values[benchmark_random(&random) % sort.keys.nr];
    }
    std::sort(sample.begin(), sample.end());
    sort.bounds.clear();
    for (int bucket = 0; bucket < sort.keys.nr_buckets; bucket++) {
        sort.bounds.push_back(bucket ? sample[(size_t)bucket * SAMPLES_PER_BUCKET] : -FLT_MAX);
    }
}

static void begin_round(void)
{
    choose_bounds();
    BENCHMARK_CUDA(
        cudaMemcpy((void *)sort.keys.values, sort.values, sort.keys.nr * sizeof(float), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)sort.keys.bounds, sort.bounds.data(), sort.bounds.size() * sizeof(float),
                              cudaMemcpyHostToDevice));
}

/* Makes places of counts, between the two kernels that deal out. */
static void find_places(void)
{
    size_t nr_bytes = sort.places.size() * sizeof(unsigned);
    BENCHMARK_CUDA(cudaMemcpy(sort.places.data(), sort.keys.places, nr_bytes, cudaMemcpyDeviceToHost));
    unsigned sum = 0;
    for (size_t at = 0; at < sort.places.size(); at++) {
        if (at % sort.keys.nr_blocks == 0) {
            sort.host_begins[at / sort.keys.nr_blocks] = sum;
        }
        sum += sort.places[at];
        sort.places[at] = sum - sort.places[at];
    }
    sort.host_begins.back() = sum;
    sort.largest = 1;
    for (int bucket = 0; bucket < sort.keys.nr_buckets; bucket++) {
        sort.largest = std::max(sort.largest, sort.host_begins[bucket + 1] - sort.host_begins[bucket]);
    }
    BENCHMARK_CUDA(cudaMemcpy(sort.keys.places, sort.places.data(), nr_bytes, cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy(sort.begins, sort.host_begins.data(), sort.host_begins.size() * sizeof(unsigned),
                              cudaMemcpyHostToDevice));
}

static unsigned nr_of(unsigned all, unsigned each)
{
    return (all + each - 1) / each;
}

/* The merges of all passes, `launch_pass` for each; the result is where the last one put it. */
template <class LaunchPass> static void merge(LaunchPass launch_pass)
{
    float *from = sort.keys.dealt, *to = sort.spare;
    for (unsigned length = SORT_RUN; length < sort.largest; length *= 2) {
        launch_pass(sort_pass{from, to, sort.begins, length, nr_of(sort.largest, 2 * length)});
        std::swap(from, to);
    }
    sort.result = from;
}

static void end_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(sort.found.data(), sort.result, sort.keys.nr * sizeof(float), cudaMemcpyDeviceToHost));
}

static void plain_round(void)
{
    begin_round();
    port_time([] {
        unsigned nr_buckets = sort.keys.nr_buckets;
        sort_count_plain<<<sort.keys.nr_blocks, SORT_THREADS>>>(sort.keys, 0);
        find_places();
        sort_deal_plain<<<sort.keys.nr_blocks, SORT_THREADS>>>(sort.keys, 0);
        unsigned runs = nr_of(sort.largest, SORT_RUN);
        sort_run_plain<<<nr_buckets * runs, SORT_THREADS>>>(sort.keys.dealt, sort.begins, runs, 0);
        merge([=](const struct sort_pass &pass) {
            sort_merge_plain<<<nr_buckets * pass.pairs, SORT_THREADS>>>(pass, 0, UINT_MAX);
        });
    });
    end_round();
}

/* Launches so many blocks, as many at a time as the device holds. */
template <class Launch> static void in_parts(int nr_blocks, const void *kernel, Launch launch)
{
    int nr_at_once = port_resident(kernel, SORT_THREADS, 0);
    for (int first = 0; first < nr_blocks; first += nr_at_once) {
        launch(std::min(nr_at_once, nr_blocks - first), first);
    }
}

static void split_round(void)
{
    begin_round();
    port_time([] {
        unsigned nr_buckets = sort.keys.nr_buckets;
        in_parts(sort.keys.nr_blocks, (const void *)sort_count_plain,
                 [](int nr, int first) { sort_count_plain<<<nr, SORT_THREADS>>>(sort.keys, first); });
        find_places();
        in_parts(sort.keys.nr_blocks, (const void *)sort_deal_plain,
                 [](int nr, int first) { sort_deal_plain<<<nr, SORT_THREADS>>>(sort.keys, first); });
        unsigned runs = nr_of(sort.largest, SORT_RUN);
        in_parts((int)(nr_buckets * runs), (const void *)sort_run_plain, [=](int nr, int first) {
            sort_run_plain<<<nr, SORT_THREADS>>>(sort.keys.dealt, sort.begins, runs, first);
        });
        merge([=](const struct sort_pass &pass) {
            for (unsigned tile = 0; tile < nr_of(2 * pass.length, SORT_RUN); tile++) {
                sort_merge_plain<<<nr_buckets * pass.pairs, SORT_THREADS>>>(pass, tile, tile + 1);
            }
        });
    });
    end_round();
}

using SortBounds = gloop::Bounds<SORT_THREADS, 8>; /* as many as of the plain kernels */

static void launch_counts(void)
{
    struct sort_keys keys = sort.keys;
    port_host().launch<gloop::Global, SortBounds>(
        keys.nr_blocks, SORT_THREADS,
        [=] __device__(gloop::DeviceLoop<gloop::Global> *loop) { sort_count_block(keys, loop->logicalBlockIdx().x); });
}

static void launch_deals(void)
{
    struct sort_keys keys = sort.keys;
    port_host().launch<gloop::Global, SortBounds>(
        keys.nr_blocks, SORT_THREADS,
        [=] __device__(gloop::DeviceLoop<gloop::Global> *loop) { sort_deal_block(keys, loop->logicalBlockIdx().x); });
}

static void launch_runs(unsigned runs)
{
    float *values = sort.keys.dealt;
    const unsigned *begins = sort.begins;
    port_host().launch<gloop::Global, SortBounds>(sort.keys.nr_buckets * runs, SORT_THREADS,
                                                  [=] __device__(gloop::DeviceLoop<gloop::Global> *loop) {
                                                      sort_run_block(values, begins, runs, loop->logicalBlockIdx().x);
                                                  });
}

static void launch_merge(const struct sort_pass &of)
{
    struct sort_pass pass = of;
    port_host().launch<gloop::Shared, SortBounds>(
        sort.keys.nr_buckets * pass.pairs, SORT_THREADS, [=] __device__(gloop::DeviceLoop<> *loop) {
            sort_merge_on(loop, pass, sort_pair_of(pass, loop->logicalBlockIdx().x), 0);
        });
}

static void gloop_round(void)
{
    begin_round();
    port_time([] {
        launch_counts();
        find_places();
        launch_deals();
        launch_runs(nr_of(sort.largest, SORT_RUN));
        merge(launch_merge);
    });
    end_round();
}

static void loops_round(void)
{
    hybridsort_loops(sort.values, sort.sorted, sort.keys.nr);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("sorted", sort.found.data(), sort.sorted, sort.keys.nr, 0, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)sort.keys.values));
        BENCHMARK_CUDA(cudaFree(sort.keys.dealt));
        BENCHMARK_CUDA(cudaFree(sort.spare));
        BENCHMARK_CUDA(cudaFree((void *)sort.keys.bounds));
        BENCHMARK_CUDA(cudaFree(sort.keys.places));
        BENCHMARK_CUDA(cudaFree(sort.begins));
    }
    free(sort.values);
    free(sort.sorted);
}

int main(int argc, char **argv)
{
    struct port port = {{"hybridsort", "floats in buckets, sorted by merging", "Mvalues/s", 0, "values", prepare, NULL,
                         loops_round, NULL, check, NULL, release},
                        32768,
                        1 << 24,
                        {plain_round, split_round, gloop_round}};
    return port_main(&port, argc, argv);
}
