// Small, because it is compiled with -G and -lineinfo, whose directives would drown a longer program.
struct Pair {
    int first;
    float second;
};

__device__ __noinline__ float scaled(Pair pair, float by)
{
    float product = pair.second * by;

    return pair.first > 0 ? product : -product;
}

__global__ void scale(Pair *pairs, float by, int nr)
{
    for (int i = threadIdx.x; i < nr; i += blockDim.x) {
        pairs[i].second = scaled(pairs[i], by);
    }
}
