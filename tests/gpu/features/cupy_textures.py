"""A kernel of CuPy that reads a texture with linear interpolation."""

import cupy
import numpy as np
from cupy.cuda import runtime, texture
from report import part, say

SIDE = 64
BETWEEN = """
extern "C" __global__ void between(cudaTextureObject_t image, float *result) {
    int i = threadIdx.x, j = blockIdx.x;
    result[j * blockDim.x + i] = tex2D<float>(image, i + 0.75f, j + 0.25f);
}
"""


@part
def interpolation() -> None:
    form = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(form, SIDE, SIDE)
    array.copy_from(np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE))
    image = texture.TextureObject(
        texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array),
        texture.TextureDescriptor(
            (runtime.cudaAddressModeClamp, runtime.cudaAddressModeClamp),
            runtime.cudaFilterModeLinear,
            runtime.cudaReadModeElementType,
        ),
    )
    result = cupy.zeros((SIDE, SIDE), dtype=cupy.float32)
    cupy.RawKernel(BETWEEN, "between")((SIDE,), (SIDE,), (image, result))
    say("between", result)
