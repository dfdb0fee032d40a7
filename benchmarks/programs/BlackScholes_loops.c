/* BlackScholes in C: one option after another. */
#include <math.h>

#include "BlackScholes.h"

static float normal_distribution(float x)
{
    float k = 1 / (1 + CND_P * fabsf(x));
    float tail =
        INVERSE_SQRT_2PI * expf(-0.5f * x * x) * k * (CND_1 + k * (CND_2 + k * (CND_3 + k * (CND_4 + k * CND_5))));
    return x > 0 ? 1 - tail : tail;
}

void black_scholes_loops(float *call, float *put, const float *stock, const float *strike, const float *years,
                         size_t nr_options)
{
#pragma omp parallel for
    for (size_t i = 0; i < nr_options; i++) {
        float deviation = VOLATILITY * sqrtf(years[i]);
        float d1 =
            (logf(stock[i] / strike[i]) + (RISK_FREE_RATE + 0.5f * VOLATILITY * VOLATILITY) * years[i]) / deviation;
        float n1 = normal_distribution(d1);
        float n2 = normal_distribution(d1 - deviation);
        float discounted = strike[i] * expf(-RISK_FREE_RATE * years[i]);
        call[i] = stock[i] * n1 - discounted * n2;
        put[i] = discounted * (1 - n2) - stock[i] * (1 - n1);
    }
}
