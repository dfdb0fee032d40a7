/* Managed memory: what the CPU and the device write in turn, in allocations large and small. */
#include "runtime_managed.cuh"

static __global__ void put(unsigned int *to, unsigned int value)
{
    *to = value;
}

CASE(managed_in_turn)
{
    unsigned int *values = managed(NR);
    say_number("zero at first", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("read", sum(values, NR));
    values[7] = 1000;
    values[NR - 1] = 2000;
    add_and_wait(values, NR, 2);
    add_and_wait(values, NR, 3);
    say_number("seventh", values[7]);
    say_number("last", values[NR - 1]);
    say_number("all", sum(values, NR));
    memset(values, 0xff, NR * 2);
    add_and_wait(values, NR, 4);
    say_number("half set", sum(values, NR));
    for (size_t i = NR; i-- > 0;) {
        values[i] ^= 5;
    }
    add_and_wait(values, NR, 6);
    say_number("backwards", sum(values, NR));
    DO(cudaFree(values));
}

CASE(managed_untouched_by_the_cpu)
{
    unsigned int *values = managed(NR), *other = managed(NR);
    add_and_wait(values, NR, 1);
    add_and_wait(other, NR, 2);
    LAUNCH(add<<<32, 128>>>(values, NR, 3));
    LAUNCH(add<<<32, 128>>>(other, NR, 4));
    DO(cudaDeviceSynchronize());
    say_number("first", sum(values, NR));
    say_number("other", sum(other, NR));
}

CASE(managed_small)
{
    unsigned int *one = managed(1), *two = managed(100), *three = managed(20000);
    *one = 5;
    two[99] = 6;
    three[19999] = 7;
    add_and_wait(two, 100, 1);
    say_number("one", *one);
    say_number("two", two[99]);
    LAUNCH(put<<<1, 1>>>(one, 77));
    DO(cudaDeviceSynchronize());
    say_number("one is put", *one);
    say_number("two stays", two[99]);
    add_and_wait(three, 20000, 1);
    say_number("three", sum(three, 20000));
    DO(cudaFree(two));
    unsigned int *again = managed(100);
    say_number("one stays", *one);
    for (int i = 0; i < 100; i++) {
        again[i] = 9 * i;
    }
    add_and_wait(again, 100, 1);
    say_number("again", sum(again, 100));
    DO(cudaFree(one));
    DO(cudaFree(one));
    DO(cudaFree(three));
    DO(cudaFree(again + 1));
    DO(cudaFree(again));
}

struct part {
    unsigned int *memory;
    size_t free_bytes, bytes;
    float ms;
    int device, attribute;
    unsigned int value;
    cudaPointerAttributes kind;
};

/* What calls are given, and what they give, may itself be managed memory that the device has. */
CASE(managed_arguments)
{
    part *parts = nullptr;
    DO(cudaMallocManaged(&parts, 1000 * sizeof(part)));
    for (int round = 0; round < 3; round++) {
        part *own = &parts[round * 300];
        own->value = 40 + round;
        LAUNCH(put<<<1, 1>>>(&parts[999].value, 5));
        DO(cudaMallocManaged(&own->memory, 4000));
        LAUNCH(put<<<1, 1>>>(&parts[999].value, 6));
        DO(cudaGetDevice(&own->device));
        void *parameters[] = {&own->memory, &own->value};
        DO(cudaLaunchKernel((const void *)put, dim3(1), dim3(1), parameters, 0, nullptr));
        DO(cudaDeviceGetAttribute(&own->attribute, cudaDevAttrWarpSize, 0));
        DO(cudaDeviceSynchronize());
        DO(cudaPointerGetAttributes(&own->kind, own->memory));
        say_number("value", *own->memory);
        say_number("warp", own->attribute);
        say_number("device", own->device);
        say_number("kind", own->kind.type);
        say_number("host pointer", own->kind.hostPointer == own->memory);
        say_number("device pointer", own->kind.devicePointer == own->memory);
    }
    say_number("last", parts[999].value);
}

struct node {
    unsigned int value;
    node *next;
};

static __global__ void walk(node *first)
{
    for (node *at = first; at; at = at->next) {
        at->value *= 2;
    }
}

CASE(managed_list)
{
    node *first = nullptr;
    for (int i = 0; i < 200; i++) {
        node *made = nullptr;
        if (cudaMallocManaged(&made, sizeof(*made)) != cudaSuccess) {
            say_number("failed at", i);
            return;
        }
        made->value = i;
        made->next = first;
        first = made;
    }
    LAUNCH(walk<<<1, 1>>>(first));
    DO(cudaDeviceSynchronize());
    unsigned long long all = 0;
    for (const node *at = first; at; at = at->next) {
        all += at->value;
    }
    say_number("sum", all);
}

CASE(managed_after_a_reset)
{
    unsigned int *values = managed(NR), *one = managed(1);
    add_and_wait(values, NR, 1);
    *one = 1;
    DO(cudaDeviceReset());
    values = managed(NR);
    say_number("zero", sum(values, NR));
    add_and_wait(values, NR, 1);
    say_number("sum", sum(values, NR));
    DO(cudaFree(values));
    DO(cudaMallocManaged(&values, 0));
    DO(cudaMallocManaged(&values, 100, 9));
    DO(cudaMallocManaged(static_cast<unsigned int **>(nullptr), 100));
}
