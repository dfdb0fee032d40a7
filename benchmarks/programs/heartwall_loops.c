/* The kernel of heartwall.cu as plain loops, point for point. */
#include <math.h>
#include <stddef.h>

#include "heartwall.h"

enum {
    TEMPLATE = HEARTWALL_TEMPLATE,
    WINDOW = HEARTWALL_WINDOW,
    CONVOLVED = HEARTWALL_CONVOLVED,
    PADDED = HEARTWALL_PADDED,
    FRAME = HEARTWALL_FRAME,
};

struct workspace {
    float window[WINDOW][WINDOW], squares[WINDOW][WINDOW];
    float rotated[TEMPLATE][TEMPLATE];
    float convolution[CONVOLVED][CONVOLVED];
    float sums[CONVOLVED][CONVOLVED], square_sums[CONVOLVED][CONVOLVED];
    float padded[PADDED][PADDED], columns[CONVOLVED][PADDED];
};

static inline int lesser(int a, int b)
{
    return a < b ? a : b;
}

static inline int larger(int a, int b)
{
    return a > b ? a : b;
}

static const float *pixels_around(const struct heartwall_frame *frame, const struct heartwall_point *point, int edge)
{
    return frame->pixels + (ptrdiff_t)(point->row - edge / 2) * FRAME + point->column - edge / 2;
}

static void take_template(const struct heartwall_frame *frame, struct heartwall_point *point, float kept)
{
    const float *pixels = pixels_around(frame, point, TEMPLATE);
    float *template_pixel = point->template_pixels;
    for (int row = 0; row < TEMPLATE; row++) {
        for (int column = 0; column < TEMPLATE; column++, template_pixel++) {
            *template_pixel = kept * *template_pixel + (1 - kept) * pixels[row * FRAME + column];
        }
    }
}

static void take_window(const struct heartwall_frame *frame, const struct heartwall_point *point,
                        struct workspace *workspace)
{
    const float *pixels = pixels_around(frame, point, WINDOW);
    for (int row = 0; row < WINDOW; row++) {
        for (int column = 0; column < WINDOW; column++) {
            float pixel = pixels[row * FRAME + column];
            workspace->window[row][column] = pixel;
            workspace->squares[row][column] = pixel * pixel;
        }
    }
    for (int row = 0; row < TEMPLATE; row++) {
        for (int column = 0; column < TEMPLATE; column++) {
            workspace->rotated[TEMPLATE - 1 - row][TEMPLATE - 1 - column] =
                point->template_pixels[row * TEMPLATE + column];
        }
    }
}

static void convolve(struct workspace *workspace)
{
    for (int row = 0; row < CONVOLVED; row++) {
        for (int column = 0; column < CONVOLVED; column++) {
            float sum = 0;
            for (int y = larger(0, row - WINDOW + 1); y <= lesser(TEMPLATE - 1, row); y++) {
                for (int x = larger(0, column - WINDOW + 1); x <= lesser(TEMPLATE - 1, column); x++) {
                    sum += workspace->rotated[y][x] * workspace->window[row - y][column - x];
                }
            }
            workspace->convolution[row][column] = sum;
        }
    }
}

/* The sums of all squares of a template's size, from sums that run down the columns and then along the rows. */
static void sum_squares(struct workspace *workspace, float (*values)[WINDOW], float (*sums)[CONVOLVED])
{
    float (*padded)[PADDED] = workspace->padded, (*columns)[PADDED] = workspace->columns;
    for (int row = 0; row < PADDED; row++) {
        for (int column = 0; column < PADDED; column++) {
            int y = row - (TEMPLATE - 1), x = column - (TEMPLATE - 1);
            float value = y >= 0 && y < WINDOW && x >= 0 && x < WINDOW ? values[y][x] : 0;
            padded[row][column] = row > 0 ? padded[row - 1][column] + value : value;
        }
    }
    for (int row = 0; row < CONVOLVED; row++) {
        float running = 0;
        for (int column = 0; column < PADDED; column++) {
            float above = row > 0 ? padded[row - 1][column] : 0;
            running += padded[row + TEMPLATE - 1][column] - above;
            columns[row][column] = running;
        }
        for (int column = 0; column < CONVOLVED; column++) {
            float before = column > 0 ? columns[row][column - 1] : 0;
            sums[row][column] = columns[row][column + TEMPLATE - 1] - before;
        }
    }
}

/* The sum of the template's squared differences from its mean, and the sum of its pixels. */
static float spread_of(const float (*rotated)[TEMPLATE], float *sum)
{
    float square_sum = 0;
    *sum = 0;
    for (int column = 0; column < TEMPLATE; column++) {
        float column_sum = 0, column_square_sum = 0;
        for (int row = 0; row < TEMPLATE; row++) {
            column_sum += rotated[row][column];
            column_square_sum += rotated[row][column] * rotated[row][column];
        }
        *sum += column_sum;
        square_sum += column_square_sum;
    }
    return square_sum - *sum * *sum / HEARTWALL_TEMPLATE_PIXELS;
}

static void move(const struct workspace *workspace, struct heartwall_point *point)
{
    float template_sum, template_spread = spread_of(workspace->rotated, &template_sum);
    float best = -2;
    int best_row = 0, best_column = 0;
    for (int row = CONVOLVED / 2 - HEARTWALL_REACH; row <= CONVOLVED / 2 + HEARTWALL_REACH; row++) {
        for (int column = CONVOLVED / 2 - HEARTWALL_REACH; column <= CONVOLVED / 2 + HEARTWALL_REACH; column++) {
            float sum = workspace->sums[row][column];
            float common = workspace->convolution[row][column] - sum * template_sum / HEARTWALL_TEMPLATE_PIXELS;
            float spread = workspace->square_sums[row][column] - sum * sum / HEARTWALL_TEMPLATE_PIXELS;
            float correlation = common / sqrtf(fmaxf(spread * template_spread, 1e-12f));
            if (correlation > best) {
                best = correlation;
                best_row = row;
                best_column = column;
            }
        }
    }
    point->row += best_row - CONVOLVED / 2;
    point->column += best_column - CONVOLVED / 2;
    point->correlation = best;
}

static void follow(const struct heartwall_frame *frame, struct heartwall_point *point)
{
    if (frame->number == 0) {
        take_template(frame, point, 0);
        return;
    }
    struct workspace workspace;
    take_window(frame, point, &workspace);
    convolve(&workspace);
    sum_squares(&workspace, workspace.window, workspace.sums);
    sum_squares(&workspace, workspace.squares, workspace.square_sums);
    move(&workspace, point);
    take_template(frame, point, HEARTWALL_KEPT);
}

void heartwall_loops(const struct heartwall_frame *frame)
{
#pragma omp parallel for
    for (int point = 0; point < frame->nr_points; point++) {
        follow(frame, frame->points + point);
    }
}
