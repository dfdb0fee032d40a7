/* Numbers of 16 bits (f16), to and from f64. */
#ifndef SOFTGPU_RUNTIME_HALF_H
#define SOFTGPU_RUNTIME_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SGP_HALF_NAN 0x7fffu

static inline double sgp_half_value(uint16_t bits)
{
    /* As f32, whose exponent counts from 112 lower; subnormal numbers come out right, being scaled as they are. */
    uint32_t word = (bits & 0x7fffu) << 13;
    float value;

    memcpy(&value, &word, sizeof(value));
    value *= 0x1p112f;
    if ((bits & 0x7c00u) == 0x7c00u) {
        value = bits & 0x3ffu ? NAN : INFINITY;
    }
    return bits >> 15 ? -value : value;
}

/* Rounded once, to nearest even; NaNs are the canonical one. */
static inline uint16_t sgp_half_of(double value)
{
    double magnitude = fabs(value);
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    uint64_t word;

    if (isnan(value)) {
        return SGP_HALF_NAN;
    }
    if (magnitude >= 65520) { /* half way between the greatest number and what would follow it */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x1p-14) {
        return (uint16_t)(sign | (uint32_t)nearbyint(magnitude * 0x1p24));
    }
    memcpy(&word, &magnitude, sizeof(word));
    word += (UINT64_C(1) << 41) - 1 + (word >> 42 & 1);
    return (uint16_t)(sign | (uint32_t)((word >> 42) - ((1023 - 15) << 10)));
}

#endif
