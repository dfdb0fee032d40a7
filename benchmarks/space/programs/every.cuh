/* All programs by their names, each in a small size for softgpu and in one for a GPU, and the instances of the
 * micro-benchmark. */
#ifndef BENCHMARKS_SPACE_EVERY_CUH
#define BENCHMARKS_SPACE_EVERY_CUH

#include <cstring>
#include <map>

#include "backprop.cuh"
#include "cfd.cuh"
#include "components.cuh"
#include "hotspot.cuh"
#include "lavaMD.cuh"
#include "lbm.cuh"
#include "matrixMul.cuh"
#include "md.cuh"
#include "micro.cuh"
#include "nn.cuh"
#include "pathfinder.cuh"
#include "spin.cuh"
#include "spmv.cuh"

/* On a GPU a round takes 0.2 to 1 ms with all of it, and there are more blocks than fit at once. */
struct known {
    const char *name;
    std::unique_ptr<program> (*make)(int size);
    int small, large;
};

static const struct known KNOWN[] = {
    {"cfd", make_cfd, 3, 2400},
    {"md", make_md, 8, 88},
    {"matrixMul", make_matrix, 3, 64},
    {"nn", make_nn, 2, 4096},
    {"lavaMD", make_lava, 2, 14},
    {"backprop", make_backprop, 2, 8192},
    {"lbm", make_lbm, 4, 2048},
    {"hotspot", make_hotspot, 2, 146},
    {"pathfinder", make_path, 2, 2340},
    {"spmv", make_spmv, 2, 2048},
    {"components", make_components, 2, 512},
};

static const double MOST_SPIN_US = 1e6;

/* "spin-20" */
static const char SPIN_NAME[] = "spin-%lf%n";
/* "stride-8-overlap-0.05-iterations-2" */
static const char MICRO_NAME[] = "stride-%d-overlap-%f-iterations-%d";

static std::unique_ptr<program> make_program(const char *name, bool is_large)
{
    for (const struct known &known : KNOWN) {
        if (strcmp(known.name, name) == 0) {
            return known.make(is_large ? known.large : known.small);
        }
    }
    double us;
    int nr_read = 0;
    if (sscanf(name, SPIN_NAME, &us, &nr_read) == 1 && !name[nr_read] && us > 0 && us <= MOST_SPIN_US) {
        return make_spin(name, us);
    }
    struct micro_shape shape;
    if (sscanf(name, MICRO_NAME, &shape.stride, &shape.overlap, &shape.iterations) != 3 || shape.stride < 1 ||
        !(shape.overlap >= 0 && shape.overlap < 1)) {
        fprintf(stderr, "there is no program %s\n", name);
        exit(2);
    }
    return is_large ? make_micro(name, shape, 16896, 1 << 26) : make_micro(name, shape, 2, 1 << 16);
}

/* Made when it is first asked for, and kept. */
static struct program *program_called(const std::string &name, bool is_large)
{
    static std::map<std::string, std::unique_ptr<program>> kept;
    auto &found = kept[name];
    if (!found) {
        found = make_program(name.c_str(), is_large);
    }
    return found.get();
}

#endif
