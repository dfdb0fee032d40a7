/*
 * Grep of the GPUfs project on GLoop: files in, matches out. Plain the program reads all files, copies them to the
 * device and looks for all words in one launch; split a launch is for one word; by gloop each block reads its file, has
 * a scheduling point after each word, and writes what it found. A round has the files in it, so it counts, and not the
 * kernels alone.
 *
 * --folder DIR: where the files are made, and the output.
 */
#include "grep.cuh"

#include "folder.h"
#include "port.cuh"

enum { MANY_FILES = 64, LETTERS = 12 };

static struct {
    struct grep_search loops, device;
    struct grep_files files;
    std::vector<std::string> paths; /* the output's is the last */
    std::vector<char> words;
    std::vector<struct grep_match> found;
    char *texts; /* pinned, of the plain way */
} grep;

static size_t nr_bytes(void)
{
    return (size_t)grep.loops.nr_files * grep.loops.text_bytes;
}

static void generate_words(void)
{
    uint64_t random = 1;
    grep.words.resize((size_t)grep.loops.nr_words * GREP_WORD);
    for (int word = 0; word < grep.loops.nr_words; word++) {
        uint32_t length = 4 + benchmark_random(&random) % (LETTERS - 3);
        for (uint32_t at = 0; at < length; at++) {
            grep.words[(size_t)word * GREP_WORD + at] = (char)('a' + benchmark_random(&random) % 26);
        }
    }
    grep.loops.words = grep.words.data();
}

/* Letters and spaces at random; now and then one of the words. */
static void generate_text(char *text, uint64_t *random)
{
    for (uint32_t at = 0; at < grep.loops.text_bytes; at++) {
        text[at] = "abcdefghijklmnopqrstuvwxyz     \n"[benchmark_random(random) % 32];
    }
    for (uint32_t at = 0; at + GREP_WORD <= grep.loops.text_bytes; at += 64 + benchmark_random(random) % 512) {
        const char *word = grep.loops.words + benchmark_random(random) % grep.loops.nr_words * GREP_WORD;
        memcpy(text + at, word, strlen(word));
        text[at + strlen(word)] = ' ';
    }
}

static void prepare_device(void)
{
    grep.device = grep.loops;
    size_t matches_bytes = grep.found.size() * sizeof(grep.found[0]), paths_bytes = grep.paths.size() * GREP_PATH;
    std::vector<char> names(paths_bytes);
    for (size_t at = 0; at < grep.paths.size(); at++) {
        snprintf(&names[at * GREP_PATH], GREP_PATH, "%s", grep.paths[at].c_str());
    }
    BENCHMARK_CUDA(cudaMalloc((void **)&grep.device.texts, nr_bytes()));
    BENCHMARK_CUDA(cudaMalloc((void **)&grep.device.words, grep.words.size()));
    BENCHMARK_CUDA(cudaMalloc(&grep.device.matches, matches_bytes));
    BENCHMARK_CUDA(cudaMalloc((void **)&grep.files.paths, paths_bytes));
    BENCHMARK_CUDA(cudaMalloc(&grep.files.failure, sizeof(*grep.files.failure)));
    BENCHMARK_CUDA(cudaHostAlloc((void **)&grep.texts, nr_bytes(), cudaHostAllocDefault));
    BENCHMARK_CUDA(cudaMemcpy((void *)grep.files.paths, names.data(), paths_bytes, cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemset(grep.files.failure, 0, sizeof(*grep.files.failure)));
}

static double prepare(size_t size)
{
    if (size > 1 << 16) {
        benchmark_fail("at most %d files", 1 << 16);
    }
    grep.loops.nr_files = (int)size;
    grep.loops.text_bytes = size < MANY_FILES ? 10000 : 1 << 18;
    grep.loops.nr_words = size < MANY_FILES ? 32 : 512;
    grep.found.resize(size * grep.loops.nr_words);
    generate_words();
    char *texts = (char *)benchmark_allocate(size, grep.loops.text_bytes);
    uint64_t random = 2;
    for (size_t file = 0; file < size; file++) {
        char *text = texts + file * grep.loops.text_bytes;
        generate_text(text, &random);
        grep.paths.push_back(folder_make("text-" + std::to_string(file), text, grep.loops.text_bytes));
    }
    grep.loops.texts = texts;
    grep.loops.matches = (struct grep_match *)benchmark_allocate(grep.found.size(), sizeof(struct grep_match));
    grep.paths.push_back(folder_make("matches", grep.found.data(), 0));
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * (double)nr_bytes() * grep.loops.nr_words;
}

static void copy_words(void)
{
    BENCHMARK_CUDA(cudaMemcpy((void *)grep.device.words, grep.words.data(), grep.words.size(), cudaMemcpyHostToDevice));
}

static void begin_round(void)
{
    for (int file = 0; file < grep.loops.nr_files; file++) {
        folder_read(grep.paths[file], grep.texts + (size_t)file * grep.loops.text_bytes, grep.loops.text_bytes);
    }
    BENCHMARK_CUDA(cudaMemcpy((void *)grep.device.texts, grep.texts, nr_bytes(), cudaMemcpyHostToDevice));
    copy_words();
}

static void end_round(void)
{
    size_t matches_bytes = grep.found.size() * sizeof(grep.found[0]);
    BENCHMARK_CUDA(cudaMemcpy(grep.found.data(), grep.device.matches, matches_bytes, cudaMemcpyDeviceToHost));
    folder_write(grep.paths.back(), grep.found.data(), matches_bytes);
}

static void plain_round(void)
{
    begin_round();
    port_time([] { grep_plain<<<grep.loops.nr_files, GREP_THREADS>>>(grep.device, 0, grep.loops.nr_words); });
    end_round();
}

static void split_round(void)
{
    begin_round();
    port_time([] {
        for (int word = 0; word < grep.loops.nr_words; word++) {
            grep_plain<<<grep.loops.nr_files, GREP_THREADS>>>(grep.device, word, word + 1);
        }
    });
    end_round();
}

static void launch_on_gloop(void)
{
    struct grep_search device = grep.device;
    struct grep_files files = grep.files;
    port_host().launch(device.nr_files, GREP_THREADS,
                       [=] __device__(gloop::DeviceLoop<> *loop) { grep_file_on(loop, device, files); });
}

static void gloop_round(void)
{
    long long failure;
    copy_words();
    folder_write(grep.paths.back(), NULL, 0);
    port_time(launch_on_gloop);
    BENCHMARK_CUDA(cudaMemcpy(&failure, grep.files.failure, sizeof(failure), cudaMemcpyDeviceToHost));
    if (failure) {
        benchmark_fail("a call of gloop failed: %s", strerror((int)-failure));
    }
}

static void loops_round(void)
{
    grep_loops(&grep.loops);
}

/* As they stand in the output. */
static void fetch(void)
{
    folder_read(grep.paths.back(), grep.found.data(), grep.found.size() * sizeof(grep.found[0]));
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("match", (const int32_t *)grep.found.data(), (const int32_t *)grep.loops.matches,
                                  2 * grep.found.size(), why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)grep.device.texts));
        BENCHMARK_CUDA(cudaFree((void *)grep.device.words));
        BENCHMARK_CUDA(cudaFree(grep.device.matches));
        BENCHMARK_CUDA(cudaFree((void *)grep.files.paths));
        BENCHMARK_CUDA(cudaFree(grep.files.failure));
        BENCHMARK_CUDA(cudaFreeHost(grep.texts));
    }
    free((void *)grep.loops.texts);
    free(grep.loops.matches);
}

int main(int argc, char **argv)
{
    struct port port = {
        {"grep", "words in files", "Mbytes/s", 0, "files", prepare, NULL, loops_round, fetch, check, NULL, release},
        8,
        512,
        {plain_round, split_round, gloop_round}};
    folder_open(port_take(&argc, argv, "--folder"));
    return port_main(&port, argc, argv);
}
