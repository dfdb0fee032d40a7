/* __managed__ variables, of the program and of a module. */
#include "runtime_managed.cuh"

__managed__ unsigned int one_variable = 5, another_variable = 6;
__managed__ unsigned char odd_variable[70001] = {1, 2, 3};
__managed__ unsigned int large_variable[NR];

static __global__ void use_variables(unsigned int what)
{
    one_variable += what;
    odd_variable[70000] += 3;
    for (size_t i = 0; i < NR; i++) {
        large_variable[i] += what;
    }
}

ALONE(managed_variables)
{
    say_number("one at first", one_variable);
    say_number("odd at first", odd_variable[2]);
    another_variable = 60;
    large_variable[7] = 70;
    for (unsigned int round = 1; round < 4; round++) {
        one_variable *= 2;
        odd_variable[round] += 5;
        LAUNCH(use_variables<<<1, 1>>>(round));
        DO(cudaDeviceSynchronize());
        say_number("one", one_variable);
        say_number("another", another_variable);
        say_bytes("odd", odd_variable, sizeof(odd_variable));
        say_number("large", sum(large_variable, NR));
        large_variable[NR - 1] = round;
    }
    unsigned int value = 9;
    void *address = nullptr;
    size_t bytes = 0;
    DO(cudaMemcpyToSymbol(one_variable, &value, sizeof(value)));
    say_number("copied to", one_variable);
    one_variable = 33;
    DO(cudaMemcpyFromSymbol(&value, one_variable, sizeof(value)));
    say_number("copied from", value);
    DO(cudaGetSymbolAddress(&address, one_variable));
    say_number("the same", address == &one_variable);
    DO(cudaGetSymbolSize(&bytes, odd_variable));
    say_number("bytes", bytes);
    DO(cudaMemset(large_variable, 1, sizeof(large_variable)));
    say_number("set", sum(large_variable, NR));
    cudaPointerAttributes attributes;
    DO(cudaPointerGetAttributes(&attributes, &another_variable));
    say_number("type", attributes.type);
    say_number("host pointer", attributes.hostPointer == &another_variable);
    DO(cudaFree(&another_variable));
}

/* Whatever becomes of them, what has nothing to do with them goes on. */
ALONE(managed_variables_before_a_reset)
{
    another_variable = 4;
    LAUNCH(use_variables<<<1, 1>>>(1));
    DO(cudaDeviceSynchronize());
    say_number("one", one_variable);
    one_variable = 8;
    DO(cudaDeviceReset());
    for (int round = 0; round < 2; round++) {
        unsigned int *values = managed(NR);
        add_and_wait(values, NR, round);
        say_number("sum", sum(values, NR));
        DO(cudaDeviceReset());
    }
}

/* The first work of a context is captured: that they are looked for then is nobody's business. */
ALONE(managed_variables_beside_a_capture)
{
    another_variable = 4;
    LAUNCH(use_variables<<<1, 1>>>(1));
    DO(cudaDeviceSynchronize());
    DO(cudaDeviceReset());
    void *memory = nullptr;
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    DO(cudaMalloc(&memory, 4096));
    DO(cudaStreamCreate(&stream));
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    DO(cudaMemsetAsync(memory, 7, 4096, stream));
    DO(cudaStreamEndCapture(stream, &graph));
    DO(cudaGraphInstantiate(&executable, graph, 0));
    DO(cudaGraphLaunch(executable, stream));
    DO(cudaStreamSynchronize(stream));
    say_device_bytes("memory", memory, 4096);
}

static const char *ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 shared[4] = {1, 2, 3, 4};
.visible .global .align 4 .u32 own[4] = {5, 6, 7, 8};
.visible .entry swap()
{
    .reg .u32 %r<5>;
    .reg .u64 %rd<3>;
    ld.global.u32 %r1, [shared+4];
    ld.global.u32 %r2, [own+4];
    st.global.u32 [shared+4], %r2;
    st.global.u32 [own+4], %r1;
    ret;
}
)";

/* Of a module: its address is the program's, too. */
CASE(managed_variables_of_a_module)
{
    cudaLibrary_t library;
    cudaKernel_t kernel;
    unsigned int *shared = nullptr, *own = nullptr;
    size_t bytes = 0;
    DO(cudaLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    DO(cudaLibraryGetKernel(&kernel, library, "swap"));
    DO(cudaLibraryGetManaged((void **)&shared, &bytes, library, "shared"));
    DO(cudaLibraryGetManaged((void **)&own, &bytes, library, "own"));
    say_number("at first", shared[1]);
    shared[0] = 10;
    for (int round = 0; round < 2; round++) {
        DO(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), nullptr, 0, nullptr));
        DO(cudaDeviceSynchronize());
        say_bytes("shared", shared, 16);
        shared[1] = 20;
    }
    DO(cudaLibraryGetGlobal((void **)&own, &bytes, library, "own"));
    say_device_bytes("own", own, 16);
    DO(cudaLibraryUnload(library));
}
