/* Runs the cases that use the CUDA runtime: conformance-runtime --list, or conformance-runtime NAME... */
#include "runtime.cuh"

static test_case *cases;

test_case::test_case(const char *name, void (*run)(), case_kind kind) : name(name), run(run), kind(kind), next(cases)
{
    cases = this;
}

cudaError_t say(const char *label, cudaError_t result)
{
    printf("%s: %s\n", label, cudaGetErrorName(result));
    return result;
}

void say_number(const char *label, long long value)
{
    printf("%s: %lld\n", label, value);
}

/* FNV-1a */
void say_bytes(const char *label, const void *memory, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ static_cast<const uint8_t *>(memory)[i]) * 0x100000001b3;
    }
    printf("%s: %zu bytes %016llx\n", label, bytes, static_cast<unsigned long long>(hash));
}

void say_device_bytes(const char *label, const void *memory, size_t bytes)
{
    void *copy = calloc(1, bytes);
    cudaError_t result = cudaMemcpy(copy, memory, bytes, cudaMemcpyDeviceToHost);
    if (result == cudaSuccess) {
        say_bytes(label, copy, bytes);
    } else {
        say(label, result);
    }
    free(copy);
}

unsigned int *device_words(size_t count, unsigned int first)
{
    unsigned int *host = static_cast<unsigned int *>(malloc(count * sizeof(*host))), *words = nullptr;
    for (size_t i = 0; i < count; i++) {
        host[i] = first + static_cast<unsigned int>(i);
    }
    if (cudaMalloc(&words, count * sizeof(*words)) != cudaSuccess) {
        printf("no device memory\n");
    }
    cudaMemcpy(words, host, count * sizeof(*words), cudaMemcpyHostToDevice);
    free(host);
    return words;
}

static int case_run(const char *name)
{
    const test_case *entry = cases;
    while (entry && strcmp(entry->name, name) != 0) {
        entry = entry->next;
    }
    if (!entry) {
        fprintf(stderr, "no case %s\n", name);
        return 2;
    }
    printf("== %s\n", name);
    entry->run();
    if (entry->kind == KIND_CASE) {
        cudaDeviceReset();
        cudaGetLastError();
    }
    printf("-- %s\n", name);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"CASE", "ALONE", "BARE"};
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (const test_case *entry = cases; entry; entry = entry->next) {
            printf("%s %s\n", kinds[entry->kind], entry->name);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (case_run(argv[i])) {
            return 2;
        }
    }
    return 0;
}
