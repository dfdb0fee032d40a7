// Kernels that launch kernels; needs -rdc=true.
__global__ void child(int *x)
{
    x[threadIdx.x]++;
}

__global__ void parent(int *x)
{
    cudaStream_t stream;

    child<<<1, 32>>>(x);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    child<<<2, 8, 16, stream>>>(x);
}
