// What linked.cu and the files of linked/ have in common.
#pragma once

extern __device__ int total;
extern __constant__ int scales[4];

__device__ int twice(int x);
__device__ int highest(int a, int b);
__global__ void add_to_total(int amount);
