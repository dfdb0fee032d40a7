/*
 * ldmatrix, stmatrix, movmatrix: 8 by 8 matrices of 16 bits between rows in memory and the registers of a warp.
 *
 * Lane 8 * i + j has the address of row j of matrix i. In registers lane 4 * j + i has the elements 2 * i and 2 * i + 1
 * of row j. One thread moves for all, so that no other goes on and writes what has not been read.
 */
#include <string.h>

#include "runtime/matrix.h"

#define TILE 8u

struct tile {
    uint16_t of[TILE][TILE];
};

static struct tile tile_from_memory(const struct sgp_matrix_parts *parts, uint32_t number)
{
    struct tile tile = {0};

    for (uint32_t row = 0; row < TILE; row++) {
        const struct sgp_matrix_part *part = parts->of[number * TILE + row];

        if (part) {
            memcpy(tile.of[row], part->row, sizeof(tile.of[row]));
        }
    }
    return tile;
}

static struct tile tile_from_registers(const struct sgp_matrix_parts *parts, uint32_t number)
{
    struct tile tile = {0};

    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        uint16_t *two = &tile.of[lane / 4][lane % 4 * 2];

        if (parts->of[lane]) {
            memcpy(two, &parts->of[lane]->registers[number], 2 * sizeof(*two));
        }
    }
    return tile;
}

static struct tile transposed(const struct tile *tile)
{
    struct tile result;

    for (uint32_t at = 0; at < TILE * TILE; at++) {
        result.of[at % TILE][at / TILE] = tile->of[at / TILE][at % TILE];
    }
    return result;
}

static void tile_give(const struct tile *tile, const struct sgp_matrix_parts *parts, uint32_t number, bool is_to_memory)
{
    for (uint32_t lane = 0; lane < SGP_WARP_THREADS; lane++) {
        const struct sgp_matrix_part *part = parts->of[lane];

        if (part && !is_to_memory) {
            memcpy(&part->registers[number], &tile->of[lane / 4][lane % 4 * 2], sizeof(part->registers[number]));
        } else if (part && lane / TILE == number) {
            memcpy(part->row, tile->of[lane % TILE], sizeof(tile->of[0]));
        }
    }
}

void sgp_matrix_move(struct sgp_thread *self, uint32_t form, void *row, uint32_t *registers)
{
    struct sgp_matrix_part part = {.form = form, .registers = registers, .row = row};
    struct sgp_matrix_parts parts;

    if (!sgp_matrix_meet(self, &part, &parts)) {
        return;
    }
    for (uint32_t number = 0; number < (form & SGP_MOVE_NUMBER); number++) {
        struct tile tile =
            form & SGP_MOVE_FROM_MEMORY ? tile_from_memory(&parts, number) : tile_from_registers(&parts, number);

        if (form & SGP_MOVE_TRANSPOSES) {
            tile = transposed(&tile);
        }
        tile_give(&tile, &parts, number, form & SGP_MOVE_TO_MEMORY);
    }
}
