/*
 * heartwall of Rodinia, written anew: for each frame of the film a copy of the frame, one of the launch's description
 * to constant memory, one launch with a block for each point, and copies back of where the points are.
 *
 * Simpler than the original: the film is generated (a texture that moves as a whole, with noise), all points are of one
 * kind, and the search is bounded by a square instead of a second convolution with a mask. The steps of a block are
 * those of the original: rotate the template, convolve, sums that run down columns and along rows, normalise, find
 * the best, update the template.
 */
#include "heartwall.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum {
    NR_THREADS = 256,
    NR_FRAMES = 5,
    TEMPLATE = HEARTWALL_TEMPLATE,
    WINDOW = HEARTWALL_WINDOW,
    CONVOLVED = HEARTWALL_CONVOLVED,
    PADDED = HEARTWALL_PADDED,
    FRAME = HEARTWALL_FRAME,
    FRAME_BYTES = FRAME * FRAME * sizeof(float),
};

/*
 * Places must be equal: the film is made so that the next best place is far worse. Where the loops round a product
 * before they add it, the device does not (fma). In a correlation, the one sum of 289 products of about 0.25 may differ
 * by 17 * 2^-24 * 72 = 7e-5, of a spread of about 2.7: 3e-5. A template takes in one rounding of the kind in each
 * frame.
 */
static const double CORRELATION_TOLERANCE = 1e-4, TEMPLATE_TOLERANCE = NR_FRAMES * 0x1p-23;

/* How far the whole film has moved in each frame, in pixels. */
static const int SHIFT_ROWS[NR_FRAMES] = {0, 3, -2, -7, -1}, SHIFT_COLUMNS[NR_FRAMES] = {0, -4, 1, 6, 0};
static const int MOST_SHIFT = 7;

struct place {
    int32_t row, column;
};

/* What a block keeps in global memory. */
struct workspace {
    float window[WINDOW * WINDOW], squares[WINDOW * WINDOW];
    float convolution[CONVOLVED * CONVOLVED];
    float sums[CONVOLVED * CONVOLVED], square_sums[CONVOLVED * CONVOLVED];
    float padded[PADDED * PADDED], columns[CONVOLVED * PADDED];
};

static struct {
    int nr_points;
    float *frames[NR_FRAMES];
    struct heartwall_point *initial, *loops_points, *device_points; /* on the host */
    struct place *loops_places, *device_places;                     /* NR_FRAMES x nr_points */
    float *on_device_pixels;
    struct heartwall_point *on_device_points;
    struct place *on_device_places;
    struct workspace *workspaces;
} film;

static __constant__ struct heartwall_frame frame;

static __device__ const float *pixels_around(const struct heartwall_point *point, int edge)
{
    return frame.pixels + (ptrdiff_t)(point->row - edge / 2) * FRAME + point->column - edge / 2;
}

static __device__ void take_template(struct heartwall_point *point, float kept)
{
    const float *pixels = pixels_around(point, TEMPLATE);
    for (int at = threadIdx.x; at < HEARTWALL_TEMPLATE_PIXELS; at += NR_THREADS) {
        float taken = (1 - kept) * pixels[at / TEMPLATE * FRAME + at % TEMPLATE];
        point->template_pixels[at] = kept * point->template_pixels[at] + taken;
    }
}

static __device__ void take_window(const struct heartwall_point *point, struct workspace *workspace, float *rotated)
{
    const float *pixels = pixels_around(point, WINDOW);
    for (int at = threadIdx.x; at < WINDOW * WINDOW; at += NR_THREADS) {
        float pixel = pixels[at / WINDOW * FRAME + at % WINDOW];
        workspace->window[at] = pixel;
        workspace->squares[at] = pixel * pixel;
    }
    for (int at = threadIdx.x; at < HEARTWALL_TEMPLATE_PIXELS; at += NR_THREADS) {
        rotated[HEARTWALL_TEMPLATE_PIXELS - 1 - at] = point->template_pixels[at];
    }
    __syncthreads();
}

/* No barrier after it: what reads the convolution comes after sum_squares(). */
static __device__ void convolve(struct workspace *workspace, const float *rotated)
{
    for (int at = threadIdx.x; at < CONVOLVED * CONVOLVED; at += NR_THREADS) {
        int row = at / CONVOLVED, column = at % CONVOLVED;
        float sum = 0;
        for (int y = max(0, row - WINDOW + 1); y <= min(TEMPLATE - 1, row); y++) {
            for (int x = max(0, column - WINDOW + 1); x <= min(TEMPLATE - 1, column); x++) {
                sum += rotated[y * TEMPLATE + x] * workspace->window[(row - y) * WINDOW + column - x];
            }
        }
        workspace->convolution[at] = sum;
    }
}

/* The sums of all squares of a template's size, from sums that run down the columns and then along the rows. */
static __device__ void sum_squares(struct workspace *workspace, const float *values, float *sums)
{
    float *padded = workspace->padded, *columns = workspace->columns;
    for (int at = threadIdx.x; at < PADDED * PADDED; at += NR_THREADS) {
        int row = at / PADDED - (TEMPLATE - 1), column = at % PADDED - (TEMPLATE - 1);
        bool is_in_window = row >= 0 && row < WINDOW && column >= 0 && column < WINDOW;
        padded[at] = is_in_window ? values[row * WINDOW + column] : 0;
    }
    __syncthreads();
    if (threadIdx.x < PADDED) {
        for (int at = threadIdx.x + PADDED; at < PADDED * PADDED; at += PADDED) {
            padded[at] += padded[at - PADDED];
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < CONVOLVED * PADDED; at += NR_THREADS) {
        columns[at] = padded[at + (TEMPLATE - 1) * PADDED] - (at >= PADDED ? padded[at - PADDED] : 0);
    }
    __syncthreads();
    if (threadIdx.x < CONVOLVED) {
        for (int at = threadIdx.x * PADDED + 1; at < (threadIdx.x + 1) * PADDED; at++) {
            columns[at] += columns[at - 1];
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < CONVOLVED * CONVOLVED; at += NR_THREADS) {
        const float *here = columns + at / CONVOLVED * PADDED + at % CONVOLVED;
        sums[at] = here[TEMPLATE - 1] - (at % CONVOLVED > 0 ? here[-1] : 0);
    }
    __syncthreads();
}

/* The sum of the template's squared differences from its mean, and the sum of its pixels; the same in all threads. */
static __device__ float spread_of(const float *rotated, float *sum)
{
    __shared__ float column_sums[TEMPLATE], column_square_sums[TEMPLATE];
    if (threadIdx.x < TEMPLATE) {
        float column_sum = 0, column_square_sum = 0;
        for (int at = threadIdx.x; at < HEARTWALL_TEMPLATE_PIXELS; at += TEMPLATE) {
            column_sum += rotated[at];
            column_square_sum += rotated[at] * rotated[at];
        }
        column_sums[threadIdx.x] = column_sum;
        column_square_sums[threadIdx.x] = column_square_sum;
    }
    __syncthreads();
    float square_sum = 0;
    *sum = 0;
    for (int column = 0; column < TEMPLATE; column++) {
        *sum += column_sums[column];
        square_sum += column_square_sums[column];
    }
    return square_sum - *sum * *sum / HEARTWALL_TEMPLATE_PIXELS;
}

/* Makes of the convolution the correlation, where the point may have moved. */
static __device__ void normalise(struct workspace *workspace, const float *rotated)
{
    float template_sum, template_spread = spread_of(rotated, &template_sum);
    const int edge = 2 * HEARTWALL_REACH + 1, first = CONVOLVED / 2 - HEARTWALL_REACH;
    for (int at = threadIdx.x; at < edge * edge; at += NR_THREADS) {
        int place = (first + at / edge) * CONVOLVED + first + at % edge;
        float sum = workspace->sums[place];
        float common = workspace->convolution[place] - sum * template_sum / HEARTWALL_TEMPLATE_PIXELS;
        float spread = workspace->square_sums[place] - sum * sum / HEARTWALL_TEMPLATE_PIXELS;
        workspace->convolution[place] = common / sqrtf(fmaxf(spread * template_spread, 1e-12f));
    }
    __syncthreads();
}

/* The best of each row, by a thread for each; then the best of these, the first of equal ones. */
static __device__ void move(const struct workspace *workspace, struct heartwall_point *point)
{
    const int edge = 2 * HEARTWALL_REACH + 1, first = CONVOLVED / 2 - HEARTWALL_REACH;
    __shared__ float best[edge];
    __shared__ int best_column[edge];
    if (threadIdx.x < edge) {
        const float *row = workspace->convolution + (first + threadIdx.x) * CONVOLVED + first;
        int column = 0;
        for (int at = 1; at < edge; at++) {
            if (row[at] > row[column]) {
                column = at;
            }
        }
        best[threadIdx.x] = row[column];
        best_column[threadIdx.x] = column;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int row = 0;
        for (int at = 1; at < edge; at++) {
            if (best[at] > best[row]) {
                row = at;
            }
        }
        point->row += row - HEARTWALL_REACH;
        point->column += best_column[row] - HEARTWALL_REACH;
        point->correlation = best[row];
    }
    __syncthreads();
}

static __global__ void follow(struct workspace *workspaces, struct place *places)
{
    __shared__ float rotated[HEARTWALL_TEMPLATE_PIXELS];
    struct heartwall_point *point = frame.points + blockIdx.x;
    struct workspace *workspace = workspaces + blockIdx.x;
    if (frame.number == 0) {
        take_template(point, 0);
    } else {
        take_window(point, workspace, rotated);
        convolve(workspace, rotated);
        sum_squares(workspace, workspace->window, workspace->sums);
        sum_squares(workspace, workspace->squares, workspace->square_sums);
        normalise(workspace, rotated);
        move(workspace, point);
        take_template(point, HEARTWALL_KEPT);
    }
    if (threadIdx.x == 0) {
        places[blockIdx.x] = {point->row, point->column};
    }
}

/* Noise, smoothed over 3 x 3 pixels: no place of it looks like another. */
static float *generate_texture(int edge, uint64_t *random)
{
    float *noise = (float *)benchmark_allocate((size_t)(edge + 2) * (edge + 2), sizeof(float));
    float *texture = (float *)benchmark_allocate((size_t)edge * edge, sizeof(float));
    for (int at = 0; at < (edge + 2) * (edge + 2); at++) {
        noise[at] = benchmark_random_float(random);
    }
    for (int at = 0; at < edge * edge; at++) {
        for (int beside = 0; beside < 9; beside++) {
            texture[at] += noise[(at / edge + beside / 3) * (edge + 2) + at % edge + beside % 3] / 9;
        }
    }
    free(noise);
    return texture;
}

static void generate_frames(void)
{
    const int edge = FRAME + 2 * MOST_SHIFT;
    uint64_t random = 1;
    float *texture = generate_texture(edge, &random);
    for (int number = 0; number < NR_FRAMES; number++) {
        float *pixels = film.frames[number] = (float *)benchmark_allocate(FRAME * FRAME, sizeof(float));
        const float *shifted = texture + (MOST_SHIFT - SHIFT_ROWS[number]) * edge + MOST_SHIFT - SHIFT_COLUMNS[number];
        for (int at = 0; at < FRAME * FRAME; at++) {
            pixels[at] = shifted[at / FRAME * edge + at % FRAME] + 0.02f * benchmark_random_float(&random);
        }
    }
    free(texture);
}

/* Two in five of the points on the inner wall, the others on the outer one: two ellipses around the frame's centre. */
static void place_points(void)
{
    int nr_inner = film.nr_points * 2 / 5;
    for (int at = 0; at < film.nr_points; at++) {
        bool is_inner = at < nr_inner;
        double angle =
            2 * M_PI * (is_inner ? at / (double)nr_inner : (at - nr_inner) / (double)(film.nr_points - nr_inner));
        double radius = FRAME * (is_inner ? 0.2 : 0.32);
        film.initial[at].row = FRAME / 2 + (int)(radius * sin(angle));
        film.initial[at].column = FRAME / 2 + (int)(0.8 * radius * cos(angle));
    }
}

static size_t points_bytes(void)
{
    return film.nr_points * sizeof(struct heartwall_point);
}

static void prepare_device(void)
{
    film.device_points = (struct heartwall_point *)benchmark_allocate(film.nr_points, sizeof(*film.device_points));
    BENCHMARK_CUDA(cudaMalloc(&film.on_device_pixels, FRAME_BYTES));
    BENCHMARK_CUDA(cudaMalloc(&film.on_device_points, points_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&film.on_device_places, film.nr_points * sizeof(struct place)));
    BENCHMARK_CUDA(cudaMalloc(&film.workspaces, film.nr_points * sizeof(struct workspace)));
}

static double prepare(size_t size)
{
    if (size > 65536) {
        benchmark_fail("at most 65536 points");
    }
    film.nr_points = (int)size;
    film.initial = (struct heartwall_point *)benchmark_allocate(size, sizeof(*film.initial));
    film.loops_points = (struct heartwall_point *)benchmark_allocate(size, sizeof(*film.loops_points));
    film.loops_places = (struct place *)benchmark_allocate(size * NR_FRAMES, sizeof(*film.loops_places));
    film.device_places = (struct place *)benchmark_allocate(size * NR_FRAMES, sizeof(*film.device_places));
    generate_frames();
    place_points();
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return (double)size * (NR_FRAMES - 1);
}

static void device_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(film.on_device_points, film.initial, points_bytes(), cudaMemcpyHostToDevice));
    struct heartwall_frame described = {film.on_device_pixels, film.on_device_points, 0, film.nr_points};
    for (; described.number < NR_FRAMES; described.number++) {
        BENCHMARK_CUDA(
            cudaMemcpy(film.on_device_pixels, film.frames[described.number], FRAME_BYTES, cudaMemcpyHostToDevice));
        BENCHMARK_CUDA(cudaMemcpyToSymbol(frame, &described, sizeof(described)));
        follow<<<film.nr_points, NR_THREADS>>>(film.workspaces, film.on_device_places);
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaMemcpy(film.device_places + (size_t)described.number * film.nr_points, film.on_device_places,
                                  film.nr_points * sizeof(struct place), cudaMemcpyDeviceToHost));
    }
}

static void loops_round(void)
{
    memcpy(film.loops_points, film.initial, points_bytes());
    for (int number = 0; number < NR_FRAMES; number++) {
        struct heartwall_frame described = {film.frames[number], film.loops_points, number, film.nr_points};
        heartwall_loops(&described);
        for (int at = 0; at < film.nr_points; at++) {
            film.loops_places[(size_t)number * film.nr_points + at] = {film.loops_points[at].row,
                                                                       film.loops_points[at].column};
        }
    }
}

static void fetch(void)
{
    BENCHMARK_CUDA(cudaMemcpy(film.device_points, film.on_device_points, points_bytes(), cudaMemcpyDeviceToHost));
}

/* Both must have followed each point as the film moved. */
static int check_places(const char *whose, const struct place *places, char *why, size_t why_size)
{
    for (int at = 0; at < NR_FRAMES * film.nr_points; at++) {
        int number = at / film.nr_points, point = at % film.nr_points;
        int row = film.initial[point].row + SHIFT_ROWS[number];
        int column = film.initial[point].column + SHIFT_COLUMNS[number];
        if (places[at].row == row && places[at].column == column) {
            continue;
        }
        snprintf(why, why_size, "in frame %d the %s had point %d at %d, %d; it is at %d, %d", number, whose, point,
                 places[at].row, places[at].column, row, column);
        return 1;
    }
    return 0;
}

static int check(char *why, size_t why_size)
{
    if (check_places("loops", film.loops_places, why, why_size) ||
        check_places("device", film.device_places, why, why_size)) {
        return 1;
    }
    for (int at = 0; at < film.nr_points; at++) {
        const struct heartwall_point *device = film.device_points + at, *loops = film.loops_points + at;
        if (benchmark_compare_floats("correlation", &device->correlation, &loops->correlation, 1, CORRELATION_TOLERANCE,
                                     why, why_size) ||
            benchmark_compare_floats("template", device->template_pixels, loops->template_pixels,
                                     HEARTWALL_TEMPLATE_PIXELS, TEMPLATE_TOLERANCE, why, why_size)) {
            return 1;
        }
    }
    return 0;
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree(film.on_device_pixels));
        BENCHMARK_CUDA(cudaFree(film.on_device_points));
        BENCHMARK_CUDA(cudaFree(film.on_device_places));
        BENCHMARK_CUDA(cudaFree(film.workspaces));
    }
    for (float *pixels : film.frames) {
        free(pixels);
    }
    free(film.initial);
    free(film.loops_points);
    free(film.loops_places);
    free(film.device_points);
    free(film.device_places);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "heartwall",
        "follows points through the frames of a film by correlation with templates",
        "points/s",
        51,
        "points to follow",
        prepare,
        device_round,
        loops_round,
        fetch,
        check,
        NULL,
        release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
