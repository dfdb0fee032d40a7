/* Textures and surfaces as instructions: what CUDA C++ has no function for is written in PTX; kernels in which threads
 * wait for each other read as others do; what is outside traps, what is stale is caught. */
#include <initializer_list>
#include <sys/wait.h>
#include <unistd.h>

#include "check.cuh"

__global__ void queries(cudaTextureObject_t texture, cudaSurfaceObject_t surface, unsigned *out)
{
    asm("txq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(texture));
    asm("txq.height.b32 %0, [%1];" : "=r"(out[1]) : "l"(texture));
    asm("txq.channel_data_type.b32 %0, [%1];" : "=r"(out[2]) : "l"(texture));
    asm("txq.channel_order.b32 %0, [%1];" : "=r"(out[3]) : "l"(texture));
    asm("txq.normalized_coords.b32 %0, [%1];" : "=r"(out[4]) : "l"(texture));
    asm("txq.array_size.b32 %0, [%1];" : "=r"(out[5]) : "l"(texture));
    asm("suq.width.b32 %0, [%1];" : "=r"(out[6]) : "l"(surface));
    asm("suq.depth.b32 %0, [%1];" : "=r"(out[7]) : "l"(surface));
}

__global__ void forms(cudaTextureObject_t texture, float *out, int *resident)
{
    float4 c;
    asm("tex.2d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
        : "=f"(c.x), "=f"(c.y), "=f"(c.z), "=f"(c.w)
        : "l"(texture), "r"(5), "r"(3));
    out[0] = c.x, out[1] = c.y, out[2] = c.z, out[3] = c.w;
    asm("tex.2d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5, %6}], {%7, %8};"
        : "=f"(c.x), "=f"(c.y), "=f"(c.z), "=f"(c.w)
        : "l"(texture), "r"(5), "r"(3), "r"(-2), "r"(-1));
    out[4] = c.x;
    asm("tex.2d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
        : "=f"(c.x), "=f"(c.y), "=f"(c.z), "=f"(c.w)
        : "l"(texture), "r"(-1), "r"(3));
    out[5] = c.x;
    const float4 second = tex2Dgather<float4>(texture, 5.0f, 3.0f, 1);
    out[6] = second.x, out[7] = second.w;
    bool is_resident = false;
    out[8] = tex2D<float4>(texture, 2.5f, 1.5f, &is_resident).z;
    *resident = is_resident;
}

/* Threads wait for each other, in the block and in the warp, with a texture between. */
__global__ void waiting(cudaTextureObject_t texture, float *out)
{
    __shared__ float row[64];
    const int i = threadIdx.x;
    row[i] = tex2D<float4>(texture, i % 16 + 0.5f, i / 16 + 0.5f).y;
    __syncthreads();
    float value = row[63 - i] + tex2D<float4>(texture, 0.5f, 0.5f).x;
    __syncthreads();
    row[i] = value;
    __syncthreads();
    out[i] = row[i ^ 1];
}

__global__ void exchanging(cudaTextureObject_t texture, float *out)
{
    const int i = threadIdx.x;
    const float value = tex2D<float4>(texture, i % 16 + 0.5f, i / 16 + 0.5f).y;
    out[i] = __shfl_xor_sync(~0u, value, 1);
}

__global__ void sums(cudaSurfaceObject_t surface)
{
    const int x = threadIdx.x % 8 * 4, one = 1;
    asm volatile("sured.b.add.2d.u32.trap [%0, {%1, %2}], %3;" ::"l"(surface), "r"(x), "r"(0), "r"(one));
    asm volatile("sured.b.max.2d.s32.trap [%0, {%1, %2}], %3;" ::"l"(surface), "r"(x), "r"(1), "r"((int)threadIdx.x));
    asm volatile("sured.b.or.2d.b32.clamp [%0, {%1, %2}], %3;" ::"l"(surface), "r"(x), "r"(-7), "r"(1 << 20));
    asm volatile("sured.b.add.2d.u32.zero [%0, {%1, %2}], %3;" ::"l"(surface), "r"(x), "r"(99), "r"(one));
}

__global__ void wide(cudaSurfaceObject_t surface, int *out)
{
    const int x = threadIdx.x;
    surf2Dwrite(make_int4(x, x + 1, x + 2, x + 3), surface, x * 16, 2);
    surf2Dwrite(static_cast<unsigned char>(200 + x), surface, x, 3);
    surf2Dwrite(make_longlong2(x, -x), surface, x * 16, 4);
    const int4 four = surf2Dread<int4>(surface, x * 16, 2);
    const longlong2 two = surf2Dread<longlong2>(surface, x * 16, 4);
    const short2 bytes = surf2Dread<short2>(surface, 0, 3);
    out[x] = four.x + four.y + four.z + four.w + static_cast<int>(two.x - two.y);
    if (x == 0) {
        out[2] = bytes.x;
    }
    surf2Dwrite(77, surface, -5, 5 + 100, cudaBoundaryModeClamp);
}

__global__ void outside(cudaSurfaceObject_t surface)
{
    surf2Dwrite(1, surface, 0, 6);
}

__global__ void any(cudaTextureObject_t texture, float *out)
{
    *out = tex2D<float4>(texture, 0.5f, 0.5f).x;
}

static cudaArray_t make_array(const cudaChannelFormatDesc &format, int width, int height, unsigned flags)
{
    cudaArray_t array;
    OK(cudaMallocArray(&array, &format, width, height, flags));
    return array;
}

static cudaTextureObject_t make_texture(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    cudaTextureDesc wanted = {};
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    wanted.addressMode[0] = wanted.addressMode[1] = cudaAddressModeClamp;
    OK(cudaCreateTextureObject(&texture, &resource, &wanted, nullptr));
    return texture;
}

static cudaSurfaceObject_t make_surface(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    OK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

static void check_textures()
{
    float4 texels[4][16];
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 16; x++) {
            texels[y][x] = make_float4(x, y, x * y, x - y);
        }
    }
    cudaArray_t array = make_array(cudaCreateChannelDesc<float4>(), 16, 4, cudaArrayTextureGather);
    OK(cudaMemcpy2DToArray(array, 0, 0, texels, sizeof(texels[0]), sizeof(texels[0]), 4, cudaMemcpyHostToDevice));
    cudaTextureObject_t texture = make_texture(array);
    cudaArray_t other = make_array(cudaCreateChannelDesc<int>(), 8, 6, cudaArraySurfaceLoadStore);
    cudaSurfaceObject_t surface = make_surface(other);

    unsigned *answers = managed<unsigned>(8);
    queries<<<1, 1>>>(texture, surface, answers);
    const unsigned *told = fetched(answers, 8);
    const unsigned known[] = {16, 4, 0x10de, 0x10b5, 0, 0, 8, 1};
    for (int i = 0; i < 8; i++) {
        expect("query", i, told[i], known[i]);
    }

    float *out = managed<float>(64);
    int *resident = managed<int>(1);
    forms<<<1, 1>>>(texture, out, resident);
    const float *read = fetched(out, 9);
    const float wanted[] = {5, 3, 15, 2, 3, 0, 3, 2, 2};
    for (int i = 0; i < 9; i++) {
        expect("form", i, read[i], wanted[i]);
    }
    expect("resident", 0, *fetched(resident, 1), 1);

    waiting<<<1, 64>>>(texture, out);
    read = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        expect("waiting", i, read[i], (63 - (i ^ 1)) / 16);
    }
    exchanging<<<1, 64>>>(texture, out);
    read = fetched(out, 64);
    for (int i = 0; i < 64; i++) {
        expect("exchanging", i, read[i], (i ^ 1) / 16);
    }
    OK(cudaDestroyTextureObject(texture));
    OK(cudaDestroySurfaceObject(surface));
    OK(cudaFreeArray(array));
    OK(cudaFreeArray(other));
}

static void check_surfaces()
{
    int rows[6][8] = {};
    cudaArray_t array = make_array(cudaCreateChannelDesc<int>(), 8, 6, cudaArraySurfaceLoadStore);
    cudaSurfaceObject_t surface = make_surface(array);
    OK(cudaMemcpy2DToArray(array, 0, 0, rows, 32, 32, 6, cudaMemcpyHostToDevice));
    sums<<<10, 64>>>(surface);
    int *out = managed<int>(3);
    wide<<<1, 2>>>(surface, out);
    const int *found = fetched(out, 3);
    expect("wide", 0, found[0], 6);
    expect("wide", 1, found[1], 4 + 6 + 2);
    expect("bytes", 0, found[2], 200 | 201 << 8, 65536);
    OK(cudaMemcpy2DFromArray(rows, 32, array, 0, 0, 32, 6, cudaMemcpyDeviceToHost));
    for (int x = 0; x < 8; x++) {
        expect("sum", x, rows[0][x], 80 | 1 << 20);
        expect("maximum", x, rows[1][x], 56 + x);
        expect("clamped", x, rows[5][x], x == 0 ? 77 : 0);
    }
    OK(cudaDestroySurfaceObject(surface));
    OK(cudaFreeArray(array));
}

__global__ void viewed(cudaTextureObject_t texture, float *out)
{
    *out = tex2DLayered<float>(texture, 1.5f, 0.5f, 1);
}

/* Whole numbers of 32 bits read as floats, from the second layer on. */
static void check_view()
{
    unsigned texels[4][1][2] = {};
    texels[2][0][1] = 0x3fc00000;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(2, 1, 4), cudaArrayLayered));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(texels, 8, 2, 1);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(2, 1, 4);
    copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc wanted = {};
    wanted.addressMode[0] = wanted.addressMode[1] = cudaAddressModeClamp;
    wanted.readMode = cudaReadModeElementType;
    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1;
    view.width = 2;
    view.height = 1;
    view.firstLayer = 1;
    view.lastLayer = 3;
    cudaTextureObject_t texture;
    OK(cudaCreateTextureObject(&texture, &resource, &wanted, &view));
    cudaResourceViewDesc told;
    OK(cudaGetTextureObjectResourceViewDesc(&told, texture));
    expect("view", 0, told.firstLayer, 1);
    float *out = managed<float>(1);
    viewed<<<1, 1>>>(texture, out);
    expect("viewed", 0, *fetched(out, 1), 1.5);
    OK(cudaDestroyTextureObject(texture));
    OK(cudaFreeArray(array));
    size_t widest;
    OK(cudaDeviceGetTexture1DLinearMaxWidth(&widest, &format, 0));
    expect("widest", 0, widest, 1 << 28);
}

static void check_outside()
{
    cudaArray_t array = make_array(cudaCreateChannelDesc<int>(), 8, 6, cudaArraySurfaceLoadStore);
    outside<<<1, 1>>>(make_surface(array));
    expect("outside", 0, cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

static void check_stale()
{
    float *out = managed<float>(1);
    cudaArray_t array = make_array(cudaCreateChannelDesc<float4>(), 8, 6, 0);
    cudaTextureObject_t texture = make_texture(array);
    any<<<1, 1>>>(texture, out);
    OK(cudaDeviceSynchronize());
    OK(cudaDestroyTextureObject(texture));
    expect("destroyed twice", 0, cudaDestroyTextureObject(texture), cudaErrorInvalidValue);
    any<<<1, 1>>>(texture, out);
    expect("stale", 0, cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

static void check_invented()
{
    float *out = managed<float>(1);
    any<<<1, 1>>>(~0ull, out);
    expect("invented", 0, cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

/* A process that a kernel failed in gets no context any more: each has one of its own. */
static bool is_right_elsewhere(void (*check)())
{
    const pid_t child = fork();
    if (child == 0) {
        check();
        exit(nr_wrong != 0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main()
{
    for (auto check : {check_outside, check_stale, check_invented}) {
        if (!is_right_elsewhere(check)) {
            return 1;
        }
    }
    check_textures();
    check_surfaces();
    check_view();
    return finish();
}
