/*
 * Approximate image matching of the GPUfs project on GLoop, by files that are mapped. Plain all images are on the
 * device before the one launch; split a launch is for some of the known images; by gloop files are opened once, and
 * blocks map window after window, which the page cache in the device's memory has once for all of them.
 *
 * --folder DIR: where the files are made. --cold: a host loop of its own for each round, so that its page cache is
 * empty.
 */
#include "images.cuh"

#include "folder.h"
#include "port.cuh"

enum { MANY_ASKED = 64 };

static struct {
    struct images loops, device;
    struct images_files files;
    std::string known, asked; /* paths */
    std::vector<uint64_t> found;
    bool is_cold;
} album;

static size_t known_bytes(void)
{
    return (size_t)album.loops.nr_known * IMAGES_BYTES;
}

static size_t asked_bytes(void)
{
    return (size_t)album.loops.nr_asked * IMAGES_BYTES;
}

/* Known images are noise; one that is asked for is a known one with more noise. */
static void generate(uint8_t *known, uint8_t *asked)
{
    uint64_t random = 1;
    std::generate(known, known + known_bytes(), [&] { return (uint8_t)(benchmark_random(&random) >> 24); });
    for (int image = 0; image < album.loops.nr_asked; image++) {
        const uint8_t *like = known + (size_t)(benchmark_random(&random) % album.loops.nr_known) * IMAGES_BYTES;
        std::transform(like, like + IMAGES_BYTES, asked + (size_t)image * IMAGES_BYTES,
                       [&](uint8_t pixel) { return (uint8_t)(pixel ^ (benchmark_random(&random) >> 27)); });
    }
}

static char *path_on_device(const std::string &path)
{
    char *found;
    BENCHMARK_CUDA(cudaMalloc(&found, path.size() + 1));
    BENCHMARK_CUDA(cudaMemcpy(found, path.c_str(), path.size() + 1, cudaMemcpyHostToDevice));
    return found;
}

static void prepare_device(void)
{
    album.device = album.loops;
    BENCHMARK_CUDA(cudaMalloc(&album.device.nearest, album.found.size() * sizeof(uint64_t)));
    if (port_run.way == PORT_GLOOP) {
        album.files.known = path_on_device(album.known);
        album.files.asked = path_on_device(album.asked);
        BENCHMARK_CUDA(cudaMalloc(&album.files.descriptors, 2 * sizeof(int)));
        BENCHMARK_CUDA(cudaMalloc(&album.files.failure, sizeof(*album.files.failure)));
        BENCHMARK_CUDA(cudaMemset(album.files.failure, 0, sizeof(*album.files.failure)));
    } else {
        BENCHMARK_CUDA(cudaMalloc((void **)&album.device.known, known_bytes()));
        BENCHMARK_CUDA(cudaMalloc((void **)&album.device.asked, asked_bytes()));
    }
}

static double prepare(size_t size)
{
    if (size > 1 << 16) {
        benchmark_fail("at most %d images that are asked for", 1 << 16);
    }
    album.loops.nr_asked = (int)size;
    album.loops.nr_known = size < MANY_ASKED ? 72 : 1 << 14;
    album.files.window = size < MANY_ASKED ? 32 : 1 << 12;
    album.files.step = size < MANY_ASKED ? 16 : 128;
    album.found.resize(size);
    uint8_t *known = (uint8_t *)benchmark_allocate(album.loops.nr_known, IMAGES_BYTES);
    uint8_t *asked = (uint8_t *)benchmark_allocate(size, IMAGES_BYTES);
    generate(known, asked);
    album.loops.known = known;
    album.loops.asked = asked;
    album.loops.nearest = (uint64_t *)benchmark_allocate(size, sizeof(uint64_t));
    album.known = folder_make("known", known, known_bytes());
    album.asked = folder_make("asked", asked, asked_bytes());
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * (double)album.loops.nr_known * (double)size;
}

static void begin_round(void)
{
    BENCHMARK_CUDA(cudaMemset(album.device.nearest, 0xff, album.found.size() * sizeof(uint64_t)));
}

/* The plain way's files, which it reads as they lie in the page cache of the host. */
static void read_files(void)
{
    folder_read(album.known, (void *)album.loops.known, known_bytes());
    folder_read(album.asked, (void *)album.loops.asked, asked_bytes());
    BENCHMARK_CUDA(cudaMemcpy((void *)album.device.known, album.loops.known, known_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)album.device.asked, album.loops.asked, asked_bytes(), cudaMemcpyHostToDevice));
}

static void end_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(album.found.data(), album.device.nearest, album.found.size() * sizeof(uint64_t),
                              cudaMemcpyDeviceToHost));
}

static void plain_round(void)
{
    begin_round();
    read_files();
    port_time([] { images_plain<<<album.loops.nr_asked, IMAGES_THREADS>>>(album.device, 0, album.loops.nr_known); });
    end_round();
}

static void split_round(void)
{
    begin_round();
    read_files();
    port_time([] {
        for (int first = 0; first < album.loops.nr_known; first += album.files.step) {
            int end = std::min(first + album.files.step, album.loops.nr_known);
            images_plain<<<album.loops.nr_asked, IMAGES_THREADS>>>(album.device, first, end);
        }
    });
    end_round();
}

/* Ends the program where a call failed. */
template <class Entry> static void launch_on_gloop(int nr_blocks, const Entry &entry)
{
    long long failure;
    port_host().launch<gloop::Shared, gloop::Bounds<IMAGES_THREADS, 4>>(nr_blocks, IMAGES_THREADS, entry);
    BENCHMARK_CUDA(cudaMemcpy(&failure, album.files.failure, sizeof(failure), cudaMemcpyDeviceToHost));
    if (failure) {
        benchmark_fail("a call of gloop failed: %s", strerror((int)-failure));
    }
}

static void gloop_round(void)
{
    struct images device = album.device;
    struct images_files files = album.files;
    if (album.is_cold) {
        port_run.host.reset();
    }
    begin_round();
    port_time([=] {
        launch_on_gloop(1, [=] __device__(gloop::DeviceLoop<> *loop) { images_open_on(loop, files); });
        launch_on_gloop(device.nr_asked,
                        [=] __device__(gloop::DeviceLoop<> *loop) { images_block_on(loop, device, files); });
        launch_on_gloop(1, [=] __device__(gloop::DeviceLoop<> *loop) { images_close_on(loop, files); });
    });
    end_round();
}

static void loops_round(void)
{
    images_loops(&album.loops);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("nearest", (const int32_t *)album.found.data(), (const int32_t *)album.loops.nearest,
                                  2 * album.found.size(), why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(album.device.nearest));
        if (port_run.way == PORT_GLOOP) {
            BENCHMARK_CUDA(cudaFree((void *)album.files.known));
            BENCHMARK_CUDA(cudaFree((void *)album.files.asked));
            BENCHMARK_CUDA(cudaFree(album.files.descriptors));
            BENCHMARK_CUDA(cudaFree(album.files.failure));
        } else {
            BENCHMARK_CUDA(cudaFree((void *)album.device.known));
            BENCHMARK_CUDA(cudaFree((void *)album.device.asked));
        }
    }
    free((void *)album.loops.known);
    free((void *)album.loops.asked);
    free(album.loops.nearest);
}

int main(int argc, char **argv)
{
    struct port port = {{"images", "the nearest of many images", "Mimages/s", 0, "images that are asked for", prepare,
                         NULL, loops_round, NULL, check, NULL, release},
                        8,
                        512,
                        {plain_round, split_round, gloop_round}};
    port.options.cache_bytes = 128 << 20;
    album.is_cold = port_take_flag(&argc, argv, "--cold");
    folder_open(port_take(&argc, argv, "--folder"));
    return port_main(&port, argc, argv);
}
