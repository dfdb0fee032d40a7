/*
 * nw of Rodinia, written anew: a wavefront of launches, one for each diagonal of tiles, that nothing waits for until
 * the scores are copied back. Within a tile, 16 threads go over its diagonals with a barrier after each. Integers only,
 * so the results must be equal.
 */
#include "nw.h"

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum { NR_RESIDUES = 20 };

static struct {
    struct nw_matrices loops, device;
    int32_t *initial_scores, *device_scores; /* on the host */
} alignment;

static __device__ void fill_cell(int32_t (*scores)[NW_TILE + 1], int32_t (*similarity)[NW_TILE], int row, int column)
{
    int32_t match = scores[row][column] + similarity[row][column];
    int32_t gap = max(scores[row + 1][column], scores[row][column + 1]) - NW_GAP;
    scores[row + 1][column + 1] = max(match, gap);
}

/* Cells beyond the matrix are computed from zeros and not stored: no cell needs one to its right or below it. */
static __global__ void fill_tiles(struct nw_matrices matrices, struct nw_diagonal diagonal)
{
    __shared__ int32_t scores[NW_TILE + 1][NW_TILE + 1], similarity[NW_TILE][NW_TILE];
    int thread = threadIdx.x;
    int tile_column = diagonal.first_column + blockIdx.x;
    int first_row = (diagonal.sum - tile_column) * NW_TILE, first_column = tile_column * NW_TILE;
    size_t pitch = matrices.nr_cells + 1;
    int nr_rows = min(NW_TILE, matrices.nr_cells - first_row);
    int nr_columns = min(NW_TILE, matrices.nr_cells - first_column);
    int32_t *corner = matrices.scores + first_row * pitch + first_column;
    const int32_t *similarity_corner = matrices.similarity + (first_row + 1) * pitch + first_column + 1;

    for (int row = 0; row < NW_TILE; row++) {
        similarity[row][thread] = row < nr_rows && thread < nr_columns ? similarity_corner[row * pitch + thread] : 0;
    }
    if (thread == 0) {
        scores[0][0] = corner[0];
    }
    scores[thread + 1][0] = thread < nr_rows ? corner[(thread + 1) * pitch] : 0;
    scores[0][thread + 1] = thread < nr_columns ? corner[thread + 1] : 0;
    __syncthreads();

    for (int step = 0; step < NW_TILE; step++) {
        if (thread <= step) {
            fill_cell(scores, similarity, step - thread, thread);
        }
        __syncthreads();
    }
    for (int step = NW_TILE - 2; step >= 0; step--) {
        if (thread <= step) {
            fill_cell(scores, similarity, NW_TILE - 1 - thread, NW_TILE - 1 - step + thread);
        }
        __syncthreads();
    }

    if (thread < nr_columns) {
        for (int row = 0; row < nr_rows; row++) {
            corner[(row + 1) * pitch + thread + 1] = scores[row + 1][thread + 1];
        }
    }
}

static size_t nr_elements(void)
{
    size_t pitch = alignment.loops.nr_cells + 1;
    return pitch * pitch;
}

static size_t matrix_bytes(void)
{
    return nr_elements() * sizeof(int32_t);
}

/* How well each pair of residues fits: symmetric, best for equal ones, in the range of the usual substitution matrices.
 */
static void generate_substitutions(int32_t substitutions[NR_RESIDUES][NR_RESIDUES], uint64_t *random)
{
    for (int one = 0; one < NR_RESIDUES; one++) {
        for (int other = 0; other < one; other++) {
            substitutions[one][other] = substitutions[other][one] = (int32_t)(benchmark_random(random) % 8) - 4;
        }
        substitutions[one][one] = 4 + (int32_t)(benchmark_random(random) % 8);
    }
}

static int32_t *generate_similarity(int nr_cells)
{
    int32_t substitutions[NR_RESIDUES][NR_RESIDUES];
    uint64_t random = 1;
    generate_substitutions(substitutions, &random);
    uint8_t *sequences = (uint8_t *)benchmark_allocate(2 * (size_t)nr_cells, 1);
    for (size_t at = 0; at < 2 * (size_t)nr_cells; at++) {
        sequences[at] = benchmark_random(&random) % NR_RESIDUES;
    }
    int32_t *similarity = (int32_t *)benchmark_allocate(nr_elements(), sizeof(int32_t));
    size_t pitch = nr_cells + 1;
    for (int row = 0; row < nr_cells; row++) {
        for (int column = 0; column < nr_cells; column++) {
            similarity[(row + 1) * pitch + column + 1] = substitutions[sequences[row]][sequences[nr_cells + column]];
        }
    }
    free(sequences);
    return similarity;
}

static double prepare(size_t size)
{
    if (size > 65535) {
        benchmark_fail("at most 65535 residues");
    }
    struct nw_matrices *loops = &alignment.loops, *device = &alignment.device;
    loops->nr_cells = device->nr_cells = (int)size;
    loops->similarity = generate_similarity(loops->nr_cells);
    loops->scores = (int32_t *)benchmark_allocate(nr_elements(), sizeof(int32_t));
    alignment.initial_scores = (int32_t *)benchmark_allocate(nr_elements(), sizeof(int32_t));
    for (size_t at = 0; at <= size; at++) {
        alignment.initial_scores[at] = alignment.initial_scores[at * (size + 1)] = -(int32_t)at * NW_GAP;
    }
    if (benchmark_uses_device()) {
        alignment.device_scores = (int32_t *)benchmark_allocate(nr_elements(), sizeof(int32_t));
        BENCHMARK_CUDA(cudaMalloc(&device->similarity, matrix_bytes()));
        BENCHMARK_CUDA(cudaMalloc(&device->scores, matrix_bytes()));
    }
    return (double)size * size * 1e-6;
}

static void fill(const struct nw_matrices *matrices,
                 void (*run)(const struct nw_matrices *, const struct nw_diagonal *))
{
    int nr_tiles = (matrices->nr_cells + NW_TILE - 1) / NW_TILE;
    for (int sum = 0; sum < 2 * nr_tiles - 1; sum++) {
        struct nw_diagonal diagonal = {sum, 0, sum + 1};
        if (sum >= nr_tiles) {
            diagonal.first_column = sum - nr_tiles + 1;
            diagonal.nr_tiles = 2 * nr_tiles - 1 - sum;
        }
        run(matrices, &diagonal);
    }
}

static void launch(const struct nw_matrices *matrices, const struct nw_diagonal *diagonal)
{
    fill_tiles<<<diagonal->nr_tiles, NW_TILE>>>(*matrices, *diagonal);
    BENCHMARK_CUDA(cudaGetLastError());
}

static void device_round(void)
{
    const struct nw_matrices *device = &alignment.device;
    BENCHMARK_CUDA(
        cudaMemcpy((void *)device->similarity, alignment.loops.similarity, matrix_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy(device->scores, alignment.initial_scores, matrix_bytes(), cudaMemcpyHostToDevice));
    fill(device, launch);
    BENCHMARK_CUDA(cudaMemcpy(alignment.device_scores, device->scores, matrix_bytes(), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    memcpy(alignment.loops.scores, alignment.initial_scores, matrix_bytes());
    fill(&alignment.loops, nw_loops);
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("score", alignment.device_scores, alignment.loops.scores, nr_elements(), why,
                                  why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)alignment.device.similarity));
        BENCHMARK_CUDA(cudaFree(alignment.device.scores));
    }
    free((void *)alignment.loops.similarity);
    free(alignment.loops.scores);
    free(alignment.initial_scores);
    free(alignment.device_scores);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "nw",
        "the best global alignment of two sequences (Needleman-Wunsch), tile by tile",
        "Mcells/s",
        1024,
        "residues of each sequence",
        prepare,
        device_round,
        loops_round,
        NULL,
        check,
        NULL,
        release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
