/* BlackScholes: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_BLACKSCHOLES_H
#define BENCHMARKS_PROGRAMS_BLACKSCHOLES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RISK_FREE_RATE 0.02f
#define VOLATILITY     0.30f

/*
 * The cumulative normal distribution after Abramowitz and Stegun, formula 26.2.17: 1 minus the density at |x| times a
 * polynomial of degree 5 in 1 / (1 + CND_P * |x|), the first coefficient that of the first power.
 */
#define CND_P            0.2316419f
#define CND_1            0.31938153f
#define CND_2            -0.356563782f
#define CND_3            1.781477937f
#define CND_4            -1.821255978f
#define CND_5            1.330274429f
#define INVERSE_SQRT_2PI 0.39894228040143267794f

/* Prices of European options without dividends. `years` to expiry. */
void black_scholes_loops(float *call, float *put, const float *stock, const float *strike, const float *years,
                         size_t nr_options);

#ifdef __cplusplus
}
#endif

#endif
