/* Numbers by cuRAND, of each of its generators with a seed. */
#include <curand.h>
#include <vector>

#include "library.h"

int main()
{
    const size_t NR = 10000;
    const curandRngType_t types[] = {CURAND_RNG_PSEUDO_XORWOW,        CURAND_RNG_PSEUDO_MRG32K3A,
                                     CURAND_RNG_PSEUDO_MTGP32,        CURAND_RNG_PSEUDO_MT19937,
                                     CURAND_RNG_PSEUDO_PHILOX4_32_10, CURAND_RNG_QUASI_SOBOL32};
    float *device = on_device(std::vector<float>(NR));
    for (curandRngType_t type : types) {
        curandGenerator_t generator;
        printf("type %d\n", (int)type);
        DO(curandCreateGenerator(&generator, type));
        if (type < CURAND_RNG_QUASI_DEFAULT) {
            DO(curandSetPseudoRandomGeneratorSeed(generator, 1234));
        }
        DO(curandGenerateUniform(generator, device, NR));
        say_floats("uniform", device, NR);
        DO(curandGenerateNormal(generator, device, NR, 1.0f, 2.0f));
        say_floats("normal", device, NR);
        DO(curandDestroyGenerator(generator));
    }
    return 0;
}
