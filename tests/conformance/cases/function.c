/* Functions and occupancy: what they need and how many fit. */
#include "case.h"

static const char *const names[] = {"empty",      "fill",    "reverse_static", "reverse_dynamic",
                                    "take_large", "bounded", "use_stack"};
enum { NR_NAMES = sizeof(names) / sizeof(names[0]) };

CASE(function_attributes)
{
    for (unsigned int i = 0; i < NR_NAMES; i++) {
        for (int attribute = 0; attribute < 16; attribute++) {
            int value = -77;

            say(text("%s, attribute %d", names[i], attribute),
                CU(cuFuncGetAttribute)(&value, (CUfunction_attribute)attribute, function_of(names[i])));
            say_number(text("%s, attribute %d is", names[i], attribute), value);
        }
    }
}

CASE(function_attributes_set)
{
    static const int values[] = {-2, -1, 0, 1, 50, 100, 101, 1000};

    for (int attribute = 0; attribute < 17; attribute++) {
        for (unsigned int i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            CUfunction function = function_of("reverse_dynamic");
            int value = -77;

            say(text("set %d to %d", attribute, values[i]),
                CU(cuFuncSetAttribute)(function, (CUfunction_attribute)attribute, values[i]));
            CU(cuFuncGetAttribute)(&value, (CUfunction_attribute)attribute, function);
            say_number(text("%d after %d", attribute, values[i]), value);
        }
    }
}

CASE(function_parameters)
{
    for (unsigned int i = 0; i < NR_NAMES; i++) {
        for (size_t index = 0; index < 4; index++) {
            size_t offset = 77, size = 77;
            CUresult result = CU(cuFuncGetParamInfo)(function_of(names[i]), index, &offset, &size);

            say(text("%s, parameter %zu", names[i], index), result);
            printf("%s, parameter %zu is: %zu %zu\n", names[i], index, offset, size);
        }
    }
}

CASE(function_name_and_module)
{
    const char *name = NULL;
    CUmodule module = NULL;

    for (unsigned int i = 0; i < NR_NAMES; i++) {
        say(text("name of %s", names[i]), CU(cuFuncGetName)(&name, function_of(names[i])));
        say_text("is", name ? name : "none");
    }
    DO(cuFuncGetModule, &module, function_of("fill"));
    say_number("its module", module == module_of_kernels());
}

CASE(function_loading)
{
    CUfunctionLoadingState state = 77;

    DO(cuFuncIsLoaded, &state, function_of("fill"));
    DO(cuFuncLoad, function_of("fill"));
    DO(cuFuncIsLoaded, &state, function_of("fill"));
    say_number("state", state);
}

CASE(function_preferences)
{
    CUfunction function = function_of("fill");

    for (int config = 0; config < 5; config++) {
        row(text("cache %d", config), CU(cuFuncSetCacheConfig)(function, (CUfunc_cache)config));
    }
    for (int config = 0; config < 4; config++) {
        row(text("shared %d", config), CU(cuFuncSetSharedMemConfig)(function, (CUsharedconfig)config));
    }
}

CASE(occupancy_blocks)
{
    static const int threads[] = {1, 32, 100, 128, 256, 512, 1024, 1025, 0, -1};
    static const size_t shared[] = {0, 1000, 40000, 49152, 100000};

    for (unsigned int n = 0; n < NR_NAMES; n++) {
        for (unsigned int t = 0; t < 10; t++) {
            for (unsigned int s = 0; s < 5; s++) {
                int nr_blocks = -77;
                CUresult result = CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&nr_blocks, function_of(names[n]),
                                                                                  threads[t], shared[s]);

                printf("%s, %d threads, %zu bytes: %s %d\n", names[n], threads[t], shared[s], result_name(result),
                       nr_blocks);
            }
        }
    }
}

CASE(occupancy_flags)
{
    int nr_blocks = -77;

    for (unsigned int flags = 0; flags < 4; flags++) {
        say(text("flags %u", flags),
            CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(&nr_blocks, function_of("fill"), 128, 0, flags));
        say_number(text("blocks with %u", flags), nr_blocks);
    }
}

static size_t CUDA_CB shared_for(int block_size)
{
    return (size_t)block_size * 16;
}

CASE(occupancy_block_size)
{
    for (unsigned int n = 0; n < NR_NAMES; n++) {
        int grid = -77, block = -77;

        say(text("%s", names[n]),
            CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function_of(names[n]), NULL, 0, 0));
        printf("%s is: %d %d\n", names[n], grid, block);
        say(text("%s, limited", names[n]),
            CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function_of(names[n]), NULL, 1000, 200));
        printf("%s, limited is: %d %d\n", names[n], grid, block);
        say(text("%s, asking", names[n]),
            CU(cuOccupancyMaxPotentialBlockSizeWithFlags)(&grid, &block, function_of(names[n]), shared_for, 0, 0, 0));
        printf("%s, asking is: %d %d\n", names[n], grid, block);
    }
}

CASE(occupancy_shared_memory)
{
    for (int nr_blocks = 0; nr_blocks < 40; nr_blocks += 3) {
        size_t bytes = 77;

        say(text("%d blocks", nr_blocks),
            CU(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, function_of("fill"), nr_blocks, 128));
        say_number(text("%d blocks are", nr_blocks), (long long)bytes);
    }
}

CASE(occupancy_clusters)
{
    CUlaunchConfig config = {
        .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    int size = -77, nr_clusters = -77;

    DO(cuOccupancyMaxPotentialClusterSize, &size, function_of("fill"), &config);
    say_number("size", size);
    DO(cuOccupancyMaxActiveClusters, &nr_clusters, function_of("fill"), &config);
    say_number("clusters", nr_clusters);
}
