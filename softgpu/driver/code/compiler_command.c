/*
 * Where the compiler is. FAIRGV_SOFTGPU_COMPILER is a command, its words separated by spaces. Without it the compiler's
 * packages are looked for beside this library, where a checkout has them (ROOT/build/softgpu/libcuda.so.1), then where
 * they were when it was built; and of the Pythons of ROOT's environment, of the build and of PATH the first that this
 * user may run is taken: a worker is another user than who built it.
 *
 * Wrong when: the Python that is found lacks LLVM's package. Its last words then say so.
 */
#include "code/compiler_command.h"

#include <cpuid.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON_IN_ROOT "/.venv/bin/python"
#define VARIABLE       "PYTHONPATH="
#define ARGUMENTS      " -S -P -m softgpu.compiler"

static pthread_once_t is_found = PTHREAD_ONCE_INIT;
static char python_path[sizeof(VARIABLE) + PATH_MAX] = VARIABLE SGP_BUILT_IN;

/* The library is at ROOT/build/NAME/libcuda.so.1. */
static void root_find(void)
{
    char path[PATH_MAX], package[PATH_MAX + sizeof("/softgpu/compiler")];
    Dl_info self;

    if (!dladdr((void *)root_find, &self) || !realpath(self.dli_fname, path)) {
        return;
    }
    for (int level = 0; level < 3; level++) {
        char *slash = strrchr(path, '/');

        if (!slash) {
            return;
        }
        *slash = '\0';
    }
    snprintf(package, sizeof(package), "%s/softgpu/compiler", path);
    if (access(package, X_OK) == 0) {
        snprintf(python_path, sizeof(python_path), VARIABLE "%s", path);
    }
}

const char *sgp_compiler_python_path(void)
{
    pthread_once(&is_found, root_find);
    return python_path;
}

const char *sgp_compiler_root(void)
{
    return sgp_compiler_python_path() + strlen(VARIABLE);
}

bool sgp_compiler_command(char *command, size_t bytes)
{
    const char *wanted = getenv("FAIRGV_SOFTGPU_COMPILER");
    char python[PATH_MAX + sizeof(PYTHON_IN_ROOT)];

    if (wanted && *wanted) {
        return snprintf(command, bytes, "%s", wanted) < (int)bytes;
    }
    snprintf(python, sizeof(python), "%s" PYTHON_IN_ROOT, sgp_compiler_root());
    if (access(python, X_OK)) {
        strcpy(python, access(SGP_BUILT_WITH, X_OK) ? "python3" : SGP_BUILT_WITH);
    }
    return snprintf(command, bytes, "%s" ARGUMENTS, python) < (int)bytes;
}

/* Names, sizes and times of the Python files of a directory, in whatever order they come: so a sum. */
static uint64_t directory_state(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    struct stat status;
    uint64_t sum = 0;

    while (directory && (entry = readdir(directory))) {
        uint64_t one = 0;
        size_t length = strlen(entry->d_name);

        if (length < 4 || strcmp(entry->d_name + length - 3, ".py") ||
            fstatat(dirfd(directory), entry->d_name, &status, 0)) {
            continue;
        }
        for (size_t i = 0; i < length; i++) {
            one = one * 31 + (uint8_t)entry->d_name[i];
        }
        one = (one ^ (uint64_t)status.st_size) * 0x9e3779b97f4a7c15ull;
        one = (one ^ (uint64_t)status.st_mtim.tv_sec) * 0x9e3779b97f4a7c15ull;
        sum += (one ^ (uint64_t)status.st_mtim.tv_nsec) * 0x9e3779b97f4a7c15ull;
    }
    if (directory) {
        closedir(directory);
    }
    return sum;
}

/* Code is made for the CPU it will run on; homes travel. */
static void mix_cpu(void (*mix)(void *hash, const void *data, size_t bytes), void *hash)
{
    unsigned int registers[4] = {0};

    __get_cpuid(1, &registers[0], &registers[1], &registers[2], &registers[3]);
    registers[1] = 0; /* which core this is */
    mix(hash, registers, sizeof(registers));
    __get_cpuid_count(7, 0, &registers[0], &registers[1], &registers[2], &registers[3]);
    mix(hash, registers, sizeof(registers));
}

void sgp_compiler_identify(void (*mix)(void *hash, const void *data, size_t bytes), void *hash)
{
    const char *fibers = getenv("FAIRGV_SOFTGPU_FIBERS");
    char directories[] = SGP_COMPILER_DIRECTORIES, command[PATH_MAX] = "", directory[2 * PATH_MAX];
    char *rest = NULL;

    sgp_compiler_command(command, sizeof(command));
    mix(hash, command, strlen(command));
    /* The compiler's own choice, in its environment. */
    mix(hash, fibers, fibers ? strlen(fibers) : 0);
    mix_cpu(mix, hash);
    for (char *path = strtok_r(directories, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
        uint64_t state;

        snprintf(directory, sizeof(directory), "%s/%s", sgp_compiler_root(), path);
        state = directory_state(directory);
        mix(hash, &state, sizeof(state));
    }
}
