/* A kernel that NVRTC compiles for the linker's optimisation, linked with another by nvJitLink, and run. */
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>
#include <string>
#include <vector>

#include "library.h"

static std::vector<char> compile(const char *name, const char *source, const char *architecture)
{
    nvrtcProgram program;
    size_t bytes = 0;
    const char *options[] = {"-dlto", "-rdc=true", architecture};
    DO(nvrtcCreateProgram(&program, source, name, 0, NULL, NULL));
    printf("nvrtcCompileProgram: %d\n", (int)nvrtcCompileProgram(program, 3, options));
    DO(nvrtcGetLTOIRSize(program, &bytes));
    std::vector<char> code(bytes);
    DO(nvrtcGetLTOIR(program, code.data()));
    DO(nvrtcDestroyProgram(&program));
    return code;
}

int main()
{
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    const std::string number = std::to_string(properties.major * 10 + properties.minor);
    const std::string real = "-arch=sm_" + number;
    const std::vector<char> one =
        compile("square.cu", "__device__ float square(float x) { return x * x; }", real.c_str());
    const std::vector<char> two = compile("all.cu",
                                          "extern __device__ float square(float);\n"
                                          "extern \"C\" __global__ void all(float *values)\n"
                                          "{ values[threadIdx.x] = square(values[threadIdx.x]) + 1; }",
                                          real.c_str());
    const char *options[] = {"-lto", real.c_str()};
    nvJitLinkHandle linker;
    size_t bytes = 0;
    DO(nvJitLinkCreate(&linker, 2, options));
    DO(nvJitLinkAddData(linker, NVJITLINK_INPUT_LTOIR, one.data(), one.size(), "one"));
    DO(nvJitLinkAddData(linker, NVJITLINK_INPUT_LTOIR, two.data(), two.size(), "two"));
    DO(nvJitLinkComplete(linker));
    DO(nvJitLinkGetLinkedCubinSize(linker, &bytes));
    std::vector<char> cubin(bytes);
    DO(nvJitLinkGetLinkedCubin(linker, cubin.data()));
    DO(nvJitLinkDestroy(&linker));

    std::vector<float> values(32);
    for (size_t i = 0; i < values.size(); i++) {
        values[i] = (float)i;
    }
    float *device = on_device(values);
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&device};
    DO(cuModuleLoadData(&module, cubin.data()));
    DO(cuModuleGetFunction(&function, module, "all"));
    DO(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
    say_floats("squares and one", device, values.size());
    DO(cuModuleUnload(module));
    return 0;
}
