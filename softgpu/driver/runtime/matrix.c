/*
 * Tensor cores: mma and wmma.mma. The threads of a warp bring their elements of A, B and C, and one of them computes
 * all of D = A * B + C, in plain loops.
 *
 * Which thread has which element is what the PTX manual says of mma. Of wmma it says nothing; there each lane has the
 * next few in the order of rows, so that what a thread loads and stores lies in one row.
 *
 * The manual leaves order and rounding of sums of f16, bf16 and tf32 open, if they are no worse than f32. Here products
 * are exact, they and C are added in f64 in the order of k, and the sum is rounded once, to nearest even. f64 is a
 * chain of fma in that order. Whole numbers are exact, and wrap or saturate at the end. NaNs are the canonical one.
 *
 * Wrong when: threads of a warp come for different forms, or some do not come, which the manual forbids. What is not
 * brought counts as zeros.
 */
#include "runtime/matrix.h"

#include "runtime/half.h"

/* Of A: 32 by 16 or 16 by 32 in bytes and more, 16 by 256 in bits. Of B half of that, but 16 by 32 in wmma. */
#define MAX_FLOATS 512u
#define MAX_WHOLE  4096u
#define MAX_RESULT 256u

enum role { ROLE_A, ROLE_B, ROLE_C };

/* The part of a matrix that a thread has. B stands on its side: its rows are the columns, of k elements each. */
struct fragment {
    enum role role;
    uint32_t element;
    uint32_t word_shift; /* elements in a word, as a power of two; those of 64 bits take two words */
    uint32_t nr_rows;
    uint32_t nr_columns;
    uint32_t nr; /* elements of a thread */
    bool is_dealt;
    uint32_t first_word;
    uint32_t nr_words;
};

static struct fragment fragment_of(enum role role, uint32_t element, uint32_t nr_rows, uint32_t nr_columns,
                                   bool is_dealt, uint32_t first_word)
{
    static const uint8_t shifts[] = {[SGP_ELEMENT_F16] = 1, [SGP_ELEMENT_BF16] = 1, [SGP_ELEMENT_TF32] = 0,
                                     [SGP_ELEMENT_F32] = 0, [SGP_ELEMENT_F64] = 0,  [SGP_ELEMENT_S32] = 0,
                                     [SGP_ELEMENT_S8] = 2,  [SGP_ELEMENT_U8] = 2,   [SGP_ELEMENT_S4] = 3,
                                     [SGP_ELEMENT_U4] = 3,  [SGP_ELEMENT_B1] = 5};
    struct fragment fragment = {.role = role,
                                .element = element,
                                .word_shift = shifts[element],
                                .nr_rows = nr_rows,
                                .nr_columns = nr_columns,
                                .nr = nr_rows * nr_columns / SGP_WARP_THREADS,
                                .is_dealt = is_dealt,
                                .first_word = first_word};

    if (is_dealt && role != ROLE_C && element == SGP_ELEMENT_F16) {
        fragment.nr = SGP_DEALT_HALVES;
    }
    fragment.nr_words = element == SGP_ELEMENT_F64 ? 2 * fragment.nr : fragment.nr >> fragment.word_shift;
    return fragment;
}

/* Where a lane's element stands in the matrix, row by row. */
static uint32_t place_of(const struct fragment *fragment, uint32_t lane, uint32_t i)
{
    uint32_t group = lane / 4, member = lane % 4, word = i >> fragment->word_shift, row = group, block = word;

    if (fragment->is_dealt) {
        return (lane * fragment->nr + i) % (fragment->nr_rows * fragment->nr_columns);
    }
    if (fragment->role == ROLE_C) {
        return (group + i / 2 * 8) * fragment->nr_columns + member * 2 + i % 2;
    }
    if (fragment->nr_rows == 16) { /* words are for the upper rows and the lower ones in turn */
        row += word % 2 * 8;
        block /= 2;
    }
    return row * fragment->nr_columns + ((block * 4 + member) << fragment->word_shift) +
           (i & ((1u << fragment->word_shift) - 1));
}

static double float_of(uint32_t element, const uint32_t *words, uint32_t i)
{
    uint32_t bits = words[i];
    float single;
    double value;

    switch (element) {
    case SGP_ELEMENT_F16:
        return sgp_half_value((uint16_t)(words[i / 2] >> i % 2 * 16));
    case SGP_ELEMENT_BF16:
        bits = words[i / 2] >> i % 2 * 16 << 16;
        break;
    case SGP_ELEMENT_TF32:
        bits &= 0xffffe000u;
        break;
    case SGP_ELEMENT_F64:
        memcpy(&value, &words[2 * i], sizeof(value));
        return value;
    default:
        break;
    }
    memcpy(&single, &bits, sizeof(single));
    return single;
}

static int32_t whole_of(uint32_t element, const uint32_t *words, uint32_t i)
{
    switch (element) {
    case SGP_ELEMENT_S8:
        return (int8_t)(words[i / 4] >> i % 4 * 8);
    case SGP_ELEMENT_U8:
        return (uint8_t)(words[i / 4] >> i % 4 * 8);
    case SGP_ELEMENT_S4:
        return (int32_t)(words[i / 8] >> i % 8 * 4 << 28) >> 28;
    case SGP_ELEMENT_U4:
        return (int32_t)(words[i / 8] >> i % 8 * 4 & 15);
    case SGP_ELEMENT_B1:
        return (int32_t)(words[i / 32] >> i % 32 & 1);
    default:
        return (int32_t)words[i];
    }
}

static void float_store(uint32_t element, uint32_t *words, uint32_t i, double value)
{
    float single = (float)value;
    uint16_t half;

    switch (element) {
    case SGP_ELEMENT_F16:
        half = sgp_half_of(value);
        memcpy((uint8_t *)words + i * sizeof(half), &half, sizeof(half));
        return;
    case SGP_ELEMENT_F64:
        memcpy(&words[2 * i], &value, sizeof(value));
        return;
    default:
        if (isnan(single)) {
            words[i] = 0x7fffffffu;
        } else {
            memcpy(&words[i], &single, sizeof(single));
        }
    }
}

static void gather_floats(const struct sgp_matrix_parts *parts, const struct fragment *fragment, double *matrix)
{
    memset(matrix, 0, fragment->nr_rows * fragment->nr_columns * sizeof(*matrix));
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        for (uint32_t i = 0; parts->of[lane] && i < fragment->nr; i++) {
            matrix[place_of(fragment, lane, i)] =
                float_of(fragment->element, parts->of[lane]->registers + fragment->first_word, i);
        }
    }
}

static void gather_small(const struct sgp_matrix_parts *parts, const struct fragment *fragment, int16_t *matrix)
{
    memset(matrix, 0, fragment->nr_rows * fragment->nr_columns * sizeof(*matrix));
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        for (uint32_t i = 0; parts->of[lane] && i < fragment->nr; i++) {
            matrix[place_of(fragment, lane, i)] =
                (int16_t)whole_of(fragment->element, parts->of[lane]->registers + fragment->first_word, i);
        }
    }
}

struct product {
    struct fragment a, b, c, d;
    uint32_t flags;
};

static void multiply_floats(const struct product *product, const struct sgp_matrix_parts *parts)
{
    double a[MAX_FLOATS], b[MAX_FLOATS], c[MAX_RESULT];
    const uint32_t nr_columns = product->c.nr_columns, depth = product->a.nr_columns;

    gather_floats(parts, &product->a, a);
    gather_floats(parts, &product->b, b);
    gather_floats(parts, &product->c, c);
    for (uint32_t at = 0; at < product->c.nr_rows * nr_columns; at++) {
        const double *row = a + at / nr_columns * depth, *column = b + at % nr_columns * depth;

        for (uint32_t i = 0; i < depth; i++) { /* a product is exact in f64, but of two of f64 */
            c[at] = product->a.element == SGP_ELEMENT_F64 ? fma(row[i], column[i], c[at]) : c[at] + row[i] * column[i];
        }
    }
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        for (uint32_t i = 0; parts->of[lane] && i < product->d.nr; i++) {
            float_store(product->d.element, parts->of[lane]->registers + product->d.first_word, i,
                        c[place_of(&product->d, lane, i)]);
        }
    }
}

static int64_t dot(const struct product *product, const int16_t *row, const int16_t *column)
{
    const uint32_t depth = product->a.nr_columns;
    int64_t sum = 0;

    for (uint32_t i = 0; i < depth; i++) {
        if (product->a.element != SGP_ELEMENT_B1) {
            sum += (int32_t)row[i] * column[i];
        } else {
            sum += product->flags & SGP_MATRIX_AND ? row[i] & column[i] : row[i] ^ column[i];
        }
    }
    return sum;
}

static uint32_t whole_result(int64_t sum, bool saturates)
{
    if (saturates) {
        sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    }
    return (uint32_t)sum;
}

static void multiply_whole(const struct product *product, const struct sgp_matrix_parts *parts)
{
    int16_t a[MAX_WHOLE], b[MAX_WHOLE / 2];
    const uint32_t nr_columns = product->c.nr_columns, depth = product->a.nr_columns;

    gather_small(parts, &product->a, a);
    gather_small(parts, &product->b, b);
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        for (uint32_t i = 0; parts->of[lane] && i < product->d.nr; i++) {
            uint32_t *registers = parts->of[lane]->registers, at = place_of(&product->c, lane, i);
            int64_t sum = dot(product, a + at / nr_columns * depth, b + at % nr_columns * depth);

            sum += whole_of(product->c.element, registers + product->c.first_word, i);
            registers[product->d.first_word + i] = whole_result(sum, product->flags & SGP_MATRIX_SATURATES);
        }
    }
}

static struct product product_of(uint64_t form)
{
    const uint32_t m = form >> SGP_MATRIX_M_SHIFT & 0xff, n = form >> SGP_MATRIX_N_SHIFT & 0xff,
                   k = form >> SGP_MATRIX_K_SHIFT & 0xffff, elements = form >> SGP_MATRIX_ELEMENTS_SHIFT & 0xffff;
    struct product product = {.flags = (uint32_t)(form >> SGP_MATRIX_FLAGS_SHIFT)};
    const bool is_dealt = product.flags & SGP_MATRIX_DEALT;

    product.a = fragment_of(ROLE_A, elements & 15, m, k, is_dealt, 0);
    product.b = fragment_of(ROLE_B, elements >> 4 & 15, n, k, is_dealt, product.a.nr_words);
    product.c = fragment_of(ROLE_C, elements >> 8 & 15, m, n, is_dealt, product.b.first_word + product.b.nr_words);
    product.d = fragment_of(ROLE_C, elements >> 12 & 15, m, n, is_dealt, product.c.first_word + product.c.nr_words);
    return product;
}

bool sgp_matrix_meet(struct sgp_thread *self, struct sgp_matrix_part *part, struct sgp_matrix_parts *parts)
{
    struct sgp_thread *first = &self->team->threads[self->index / SGP_WARP_THREADS * SGP_WARP_THREADS];
    uint32_t present;

    self->part = part;
    present = sgp_warp_exchange(self, ~0u, 0, NULL);
    for (uint32_t lane = 0; !part->is_done && lane < SGP_WARP_THREADS; lane++) {
        struct sgp_matrix_part *other = present >> lane & 1 ? first[lane].part : NULL;

        parts->of[lane] = other && other->form == part->form ? other : NULL;
    }
    self->part = NULL;
    if (part->is_done) {
        return false;
    }
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        if (parts->of[lane]) {
            parts->of[lane]->is_done = true;
        }
    }
    return true;
}

void sgp_matrix_multiply(struct sgp_thread *self, uint64_t form, uint32_t *registers)
{
    struct sgp_matrix_part part = {.form = form, .registers = registers};
    struct sgp_matrix_parts parts;
    struct product product;

    if (!sgp_matrix_meet(self, &part, &parts)) {
        return;
    }
    product = product_of(form);
    if (product.d.element == SGP_ELEMENT_S32) {
        multiply_whole(&product, &parts);
    } else {
        multiply_floats(&product, &parts);
    }
}
