/* Fourier transforms by cuFFT: there and back again, in one and two dimensions, real and complex, in batches. */
#include <cmath>
#include <cufft.h>
#include <vector>

#include "library.h"

int main()
{
    const int NR = 4096, BATCH = 3, ROWS = 60, COLUMNS = 42;
    std::vector<float2> values(NR * BATCH);
    for (size_t i = 0; i < values.size(); i++) {
        values[i] = make_float2(float(i * 7 % 13) - 6, float(i * 5 % 11) - 5);
    }
    float2 *device = on_device(values);
    cufftHandle plan;
    DO(cufftPlan1d(&plan, NR, CUFFT_C2C, BATCH));
    DO(cufftExecC2C(plan, (cufftComplex *)device, (cufftComplex *)device, CUFFT_FORWARD));
    say_floats("forward", (float *)device, 2 * values.size());
    DO(cufftExecC2C(plan, (cufftComplex *)device, (cufftComplex *)device, CUFFT_INVERSE));
    say_floats("and back", (float *)device, 2 * values.size());
    DO(cufftDestroy(plan));

    std::vector<double> reals(ROWS * COLUMNS);
    for (size_t i = 0; i < reals.size(); i++) {
        reals[i] = double(i * i % 17);
    }
    double *input = on_device(reals);
    double *output = on_device(std::vector<double>(2 * ROWS * (COLUMNS / 2 + 1)));
    DO(cufftPlan2d(&plan, ROWS, COLUMNS, CUFFT_D2Z));
    DO(cufftExecD2Z(plan, input, (cufftDoubleComplex *)output));
    say_doubles("two dimensions", output, 2 * ROWS * (COLUMNS / 2 + 1));
    DO(cufftDestroy(plan));
    DO(cufftDestroy(plan));
    return 0;
}
