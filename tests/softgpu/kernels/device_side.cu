/* What kernels ask of the device itself: memory, the stack, printf, clocks, special registers. */
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

#include "check.cuh"

struct node {
    node *next;
    int value;
};

/* Each thread builds a list, sums it up and frees it; every third leaves a node to the next kernel. */
__global__ void lists(int *out, node **left)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    node *head = nullptr;

    for (int k = 0; k <= i % 10; k++) {
        node *made = (node *)malloc(sizeof(node));
        if (!made) {
            return;
        }
        made->next = head;
        made->value = i + k;
        head = made;
    }
    left[i] = nullptr;
    while (head) {
        node *next = head->next;
        sum += head->value;
        if (i % 3 == 0 && !next) {
            left[i] = head;
        } else {
            free(head);
        }
        head = next;
    }
    out[i] = sum;
}

__global__ void take_lists(int *out, node **left)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (left[i]) {
        out[i] = left[i]->value;
        free(left[i]);
    }
}

__global__ void too_much(void **out)
{
    out[0] = malloc(1ull << 40);
    out[1] = malloc(0);
    free(nullptr);
}

__device__ __noinline__ int ackermann(int m, int n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ bool is_odd(int n);
__device__ __noinline__ bool is_even(int n)
{
    return n == 0 || is_odd(n - 1);
}
__device__ __noinline__ bool is_odd(int n)
{
    return n != 0 && is_even(n - 1);
}

__device__ __noinline__ void quick_sort(int *values, int count)
{
    if (count < 2) {
        return;
    }
    int pivot = values[count / 2], low = 0, high = count - 1;
    while (low <= high) {
        while (values[low] < pivot) {
            low++;
        }
        while (values[high] > pivot) {
            high--;
        }
        if (low <= high) {
            int swapped = values[low];
            values[low++] = values[high];
            values[high--] = swapped;
        }
    }
    quick_sort(values, high + 1);
    quick_sort(values + low, count - low);
}

__global__ void recursion(int *out)
{
    int *row = out + 4 * threadIdx.x, values[24];

    row[0] = ackermann(2, threadIdx.x % 5);
    row[1] = is_even(threadIdx.x);
    for (int k = 0; k < 24; k++) {
        values[k] = (k * 7 + threadIdx.x * 13) % 29;
    }
    quick_sort(values, 24);
    row[2] = 1;
    for (int k = 1; k < 24; k++) {
        row[2] &= values[k - 1] <= values[k];
    }
    row[3] = values[threadIdx.x % 24];
}

/* A barrier within a call by address: the fibers of a block wait on deep stacks. */
__device__ __noinline__ int shifted(int *cells, int by)
{
    cells[threadIdx.x] = threadIdx.x * by;
    __syncthreads();
    int value = cells[(threadIdx.x + by) % blockDim.x];
    __syncthreads();
    return value;
}
__device__ __noinline__ int reversed(int *cells, int by)
{
    cells[threadIdx.x] = threadIdx.x + by;
    __syncthreads();
    int value = cells[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    return value;
}
__device__ int (*const meetings[2])(int *, int) = {shifted, reversed};

__global__ void meet_by_address(int *out, int which)
{
    __shared__ int cells[96];

    out[threadIdx.x] = meetings[which](cells, 5);
}

struct animal {
    int legs;
    __device__ animal(int count) : legs(count) {}
    __device__ virtual ~animal() {}
    __device__ virtual int noise(int times) const { return times; }
};
struct dog : animal {
    __device__ dog() : animal(4) {}
    __device__ int noise(int times) const override { return 10 * times + animal::noise(times); }
};
struct puppy : dog {
    int age;
    __device__ puppy(int years) : age(years) {}
    __device__ int noise(int times) const override { return dog::noise(times) * 100 + age + legs; }
};

__global__ void virtual_calls(int *out)
{
    int i = threadIdx.x;
    animal *made = i % 3 == 0 ? new animal(2) : i % 3 == 1 ? new dog : new puppy(i);

    out[i] = made->noise(i);
    delete made;
}

__global__ void on_the_stack(int *out)
{
    int count = threadIdx.x % 7 + 1, sum = 0;
    int *squares = (int *)alloca(count * sizeof(int));

    for (int k = 0; k < count; k++) {
        squares[k] = k * k + threadIdx.x;
    }
    for (int k = 0; k < count; k++) {
        sum += squares[(k + 3) % count];
    }
    out[threadIdx.x] = sum;
}

__global__ void spaces(int *out, const int *global)
{
    __shared__ int shared[4];
    __constant__ static int constant[2] = {1, 2};
    int local[4] = {(int)threadIdx.x, 1, 2, 3};
    int *volatile places[3] = {shared, local, (int *)global};
    int bits = 0;

    for (int k = 0; k < 3; k++) {
        bits |= (__isShared(places[k]) | __isLocal(places[k]) << 1 | __isGlobal(places[k]) << 2) << 4 * k;
    }
    out[0] = bits;
    out[1] = __isConstant(constant);
    out[2] = *(int *)__cvta_shared_to_generic(__cvta_generic_to_shared(&(shared[1] = 77, shared[1])));
}

__global__ void registers(unsigned long long *out)
{
    long long begin = clock64();
    unsigned value;

    out[0] = clock64() - begin > 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out[1]));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
    out[2] = value;
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(value));
    out[3] = value;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(value));
    out[4] = value;
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(value));
    out[5] = value;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(value));
    out[6] = value;
    asm volatile("mov.u32 %0, %%lanemask_gt;" : "=r"(value));
    out[7] = value;
}

__global__ void prints(const char *word, double number, long long wide, const char *nothing)
{
    printf("plain %% text\n");
    printf("%d|%5d|%-5d|%05d|%+d|% d|%i\n", -7, 42, 42, 42, 42, 42, -1);
    printf("%u|%o|%x|%X|%#x|%#o|%c\n", 4000000000u, 8, 255, 255, 255, 8, 'z');
    printf("%lld|%llu|%llx|%ld|%hd|%hhd\n", wide, (unsigned long long)wide, wide, (long)wide, (short)-3,
           (signed char)5);
    printf("%f|%.2f|%10.3f|%-10.1f|%e|%.3E|%g|%G|%a\n", number, number, number, number, number, number, number, 1e-9,
           0.5);
    printf("%s|%10s|%-10s|%.2s|\n", word, word, word, word);
    printf("%*d|%-*d|%.*f|%*.*f\n", 6, 42, 6, 42, 2, number, 9, 3, number);
    printf("%d %f %d %lld %s %d\n", 1, 2.5, 3, 4ll, "five", 6);
    printf("%f %f %f\n", (double)INFINITY, -(double)INFINITY, 0.0);
    printf("%08.3f|%+.1e|%5c|%-5c|\n", number, number, 'q', 'r');
    int nr = printf("%d%d\n", 1, 2);
    printf("%d\n", nr);
    printf("%hd|%hi|%hu|%hx|%hhd|%hhu|%hhx|\n", 70000, -70000, 70000, -1, 300, 300, -1);
    nr = printf("%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%s|%d|%-5.2f%%|\n", 1, 2, 3, 4, 5, 6, 7,
                8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, word, 6, number);
    printf("%d %d\n", nr, printf(nothing));
}

static std::string printed_by_host(const char *word, double number, long long wide)
{
    char text[4096];
    int at = 0;

#define LINE(...) at += snprintf(text + at, sizeof(text) - at, __VA_ARGS__)
    LINE("plain %% text\n");
    LINE("%d|%5d|%-5d|%05d|%+d|% d|%i\n", -7, 42, 42, 42, 42, 42, -1);
    LINE("%u|%o|%x|%X|%#x|%#o|%c\n", 4000000000u, 8, 255, 255, 255, 8, 'z');
    LINE("%lld|%llu|%llx|%ld|%hd|%hhd\n", wide, (unsigned long long)wide, wide, (long)wide, (short)-3, (signed char)5);
    LINE("%f|%.2f|%10.3f|%-10.1f|%e|%.3E|%g|%G|%a\n", number, number, number, number, number, number, number, 1e-9,
         0.5);
    LINE("%s|%10s|%-10s|%.2s|\n", word, word, word, word);
    LINE("%*d|%-*d|%.*f|%*.*f\n", 6, 42, 6, 42, 2, number, 9, 3, number);
    LINE("%d %f %d %lld %s %d\n", 1, 2.5, 3, 4ll, "five", 6);
    LINE("%f %f %f\n", (double)INFINITY, -(double)INFINITY, 0.0);
    LINE("%08.3f|%+.1e|%5c|%-5c|\n", number, number, 'q', 'r');
    LINE("12\n2\n");
    LINE("4464|-4464|4464|ffff|44|44|ff|\n");
    LINE("1234567891234567891234567891234word|%%d|%%-5.2f%%|\n");
    LINE("32 -1\n");
    return text;
}

static void check_printf()
{
    char name[] = "/tmp/printed.XXXXXX", word[] = "word", text[4096] = "", *device_word = managed<char>(8);
    int file = mkstemp(name), standard = dup(1);

    OK(cudaMemcpy(device_word, word, sizeof(word), cudaMemcpyHostToDevice));
    fflush(stdout);
    dup2(file, 1);
    prints<<<1, 1>>>(device_word, 3.14159, -123456789012345ll, nullptr);
    OK(cudaDeviceSynchronize());
    fflush(stdout);
    dup2(standard, 1);
    ssize_t bytes = pread(file, text, sizeof(text) - 1, 0);
    unlink(name);
    std::string wanted = printed_by_host(word, 3.14159, -123456789012345ll);
    if (bytes < 0 || wanted != text) {
        nr_wrong++;
        printf("printed:\n%s\nexpected:\n%s\n", text, wanted.c_str());
    }
}

static void check_memory(int *out)
{
    const int nr = 8 * 64;
    node **left = managed<node *>(nr);
    void **big = managed<void *>(2);

    for (int round = 0; round < 3; round++) {
        lists<<<8, 64>>>(out, left);
        const int *got = fetched(out, nr);
        for (int i = 0; i < nr; i++) {
            expect("list", i, got[i], (i % 10 + 1) * i + i % 10 * (i % 10 + 1) / 2);
        }
        take_lists<<<8, 64>>>(out, left);
        got = fetched(out, nr);
        for (int i = 0; i < nr; i += 3) {
            expect("left", i, got[i], i);
        }
    }
    too_much<<<1, 1>>>(big);
    expect("too much", 0, fetched(big, 2)[0] == nullptr, 1);
}

static void check_calls(int *out)
{
    recursion<<<2, 64>>>(out);
    const int *got = fetched(out, 256);
    for (int i = 0; i < 64; i++) {
        expect("ackermann", i, got[4 * i], 2 * (i % 5) + 3);
        expect("even", i, got[4 * i + 1], i % 2 == 0);
        expect("sorted", i, got[4 * i + 2], 1);
    }
    for (int which = 0; which < 2; which++) {
        meet_by_address<<<1, 96>>>(out, which);
        got = fetched(out, 96);
        for (int i = 0; i < 96; i++) {
            expect("meeting", i, got[i], which ? 95 - i + 5 : (i + 5) % 96 * 5);
        }
    }
    virtual_calls<<<1, 64>>>(out);
    got = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        expect("virtual", i, got[i], i % 3 == 0 ? i : i % 3 == 1 ? 11 * i : 1100 * i + i + 4);
    }
    on_the_stack<<<1, 64>>>(out);
    got = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        int count = i % 7 + 1;
        expect("alloca", i, got[i], (count - 1) * count * (2 * count - 1) / 6 + count * i);
    }
}

int main()
{
    int *out = managed<int>(1024);

    check_memory(out);
    check_calls(out);
    spaces<<<1, 1>>>(out, out);
    const int *got = fetched(out, 3);
    expect("spaces", 0, got[0], 0x421);
    expect("constant", 0, got[1], 1);
    expect("shared address", 0, got[2], 77);
    unsigned long long *values = managed<unsigned long long>(8);
    registers<<<1, 1, 4096>>>(values);
    const unsigned long long *read = fetched(values, 8);
    expect("clock", 0, read[0], 1);
    expect("globaltimer", 0, read[1] > 1000000000000000000ull, 1);
    expect("smid", 0, read[2] < read[3], 1);
    expect("warpid", 0, read[4], 0);
    expect("total shared", 0, read[5], 4096);
    expect("dynamic shared", 0, read[6], 4096);
    expect("lanemask", 0, read[7], 0xfffffffe);
    check_printf();
    return finish();
}
