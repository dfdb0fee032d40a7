/*
 * Constants that kernels read by name, and texts that they print: for each line of its input the constants change by
 * every way that the host has for it, by the address that it asked for in the beginning, too. "pass" has a kernel go by
 * that address, and "keep" one that finds it in memory of the device; "halves" has one compute with its halves;
 * "beyond" names memory behind a constant; "load" loads a module more, and uses its constant. Whatever happens to the
 * program between two lines, nothing may change.
 */
#include <iostream>
#include <string>

#include "check.h"
#include "driver_calls.h"

static const int NR = 64;

struct kept {
    const int *values;
};

__constant__ int values[NR];
__constant__ int factor = 3;
__constant__ long long sums[2] = {1, 2};

__global__ void use(long long *out, int line)
{
    out[0] = (long long)values[1] * factor + values[NR - 1] + sums[1] + values[line % NR];
    if (line % 2) {
        printf("line %d of %s: %d\n", line, "values", values[0]);
    }
}

__global__ void read(const int *at, long long *out)
{
    out[0] = at[1] * 5;
}

__global__ void add(unsigned low, unsigned high, long long *out)
{
    out[0] = ~(low + ((long long)high << 32));
}

__global__ void read_kept(const kept *at, long long *out)
{
    out[0] = at->values[1] * 7;
}

static const char *const MODULE = ".version 6.0\n.target sm_60\n.address_size 64\n"
                                  ".visible .const .align 4 .b8 table[4096];\n"
                                  ".visible .entry look(.param .u64 out)\n{\n"
                                  ".reg .b32 %r<2>;\n.reg .b64 %d<3>;\n"
                                  "ld.param.u64 %d1, [out];\nld.const.u32 %r1, [table+8];\ncvt.u64.u32 %d2, %r1;\n"
                                  "st.global.u64 [%d1], %d2;\nret;\n}\n";

/* A module of its own: what its kernel finds in its constant. */
static long long load(long long *out, int value)
{
    CUmodule module;
    CUfunction look;
    CUdeviceptr table;
    size_t bytes;
    long long seen = 0;
    void *parameters[] = {&out};
    OK(cuModuleLoadData(&module, MODULE));
    OK(cuModuleGetFunction(&look, module, "look"));
    OK(cuModuleGetGlobal(&table, &bytes, module, "table"));
    OK(cuMemsetD32(table, (unsigned)value, bytes / 4));
    OK(cuLaunchKernel(look, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK(cudaMemcpy(&seen, out, sizeof(seen), cudaMemcpyDeviceToHost));
    return seen;
}

int main()
{
    int given[NR], seen[NR], line = 0, *at;
    long long *out, result[2];
    kept *place;
    cudaStream_t stream;
    size_t bytes;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&out, sizeof(result)));
    CHECK(cudaMalloc(&place, sizeof(*place)));
    CHECK(cudaGetSymbolAddress((void **)&at, values));
    CHECK(cudaGetSymbolSize(&bytes, values));
    bool is_right = bytes == sizeof(given);
    for (int i = 0; i < NR; i++) {
        given[i] = i;
    }
    CHECK(cudaMemcpyToSymbol(values, given, sizeof(given)));
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string word; std::getline(std::cin, word);) {
        int *now;
        cudaPointerAttributes attributes;
        long long more = 0;
        line++;
        given[0] = line;
        CHECK(cudaMemcpyToSymbolAsync(values, given, 4, 0, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(at + NR - 1, given, 4, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemsetAsync(at + 1, line, 4, stream));
        CHECK(cudaMemcpy2DAsync(at + 2, 8, at, 8, 4, 2, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaMemcpyToSymbolAsync(sums, out, 8, 8, cudaMemcpyDeviceToDevice, stream));
        use<<<1, 1, 0, stream>>>(out, line);
        CHECK(cudaMemcpyAsync(result, out, sizeof(result), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpyFromSymbol(seen, values, sizeof(seen)));
        CHECK(cudaGetSymbolAddress((void **)&now, values));
        CHECK(cudaPointerGetAttributes(&attributes, at));
        is_right = is_right && now == at && attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == at;
        if (word == "pass") {
            read<<<1, 1, 0, stream>>>(at, out);
        } else if (word == "keep") {
            const kept here = {at};
            CHECK(cudaMemcpy(place, &here, sizeof(here), cudaMemcpyHostToDevice));
            read_kept<<<1, 1, 0, stream>>>(place, out);
        }
        if (word == "halves") {
            add<<<1, 1, 0, stream>>>((unsigned)(size_t)at, (unsigned)((size_t)at >> 32), out);
        }
        CHECK(cudaMemcpyAsync(&more, out, sizeof(more), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (word == "halves") {
            is_right = is_right && ~more == (long long)(size_t)at;
            more = 0;
            CHECK(cudaMemset(out, 0, sizeof(*out)));
        }
        if (word == "beyond") {
            more = cudaMemset(at + 8, 0, (size_t)1 << 30);
            cudaGetLastError();
        }
        if (word == "load") {
            more += load(out, line);
        }
        std::printf("%d: %lld %d %d %d %lld\n", line, result[0], seen[0], seen[2], seen[NR - 1], more);
        std::fflush(stdout);
    }
    return verdict(is_right);
}
