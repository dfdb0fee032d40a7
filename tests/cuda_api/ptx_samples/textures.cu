// Textures and surfaces: the operands in brackets.
#include <cuda_runtime.h>

__global__ void fetch(cudaTextureObject_t t, float4 *out, float x)
{
    out[0] = tex1D<float4>(t, x);
    out[1] = tex2D<float4>(t, x, x + 1);
    out[2] = tex3D<float4>(t, x, x, x);
    out[3] = tex2DLod<float4>(t, x, x, 2.f);
    out[4] = tex2DGrad<float4>(t, x, x, make_float2(1, 2), make_float2(3, 4));
    out[5] = texCubemap<float4>(t, x, x, x);
    out[6] = tex2DLayered<float4>(t, x, x, 3);
    out[7] = tex2Dgather<float4>(t, x, x, 1);
    out[8].x = tex1Dfetch<float>(t, 7);
}

__global__ void surface(cudaSurfaceObject_t s, int2 *out)
{
    uchar4 pixel;

    surf2Dread(&pixel, s, 4, 5, cudaBoundaryModeClamp);
    surf2Dwrite(pixel, s, 4, 6);
    surf3Dwrite(7.f, s, 1, 2, 3, cudaBoundaryModeZero);
    surf2DLayeredwrite(out[0], s, 1, 2, 3);
    out[1] = surf1Dread<int2>(s, 8);
}
