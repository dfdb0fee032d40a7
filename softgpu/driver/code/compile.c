/*
 * Images compiled, each into one shared object of the cache (cache.h), named by a hash of the image, of the compiler
 * and of the interface between both.
 *
 * Of a fat binary only the PTX that the compiler may choose is hashed: it is one image, whoever has left machine code
 * out of it.
 *
 * Objects appear by rename, so that any number of processes may compile the same image at once.
 *
 * Of a large image the compiler makes a quick object first, under a name of its own, and stays behind to make the
 * optimised one; it keeps the quick one locked meanwhile. A quick object that nobody works behind is one whose compiler
 * was killed, as behind the wall it is when the program ends: another is sent to finish, and nobody waits for it.
 */
#include "code/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "code/cache.h"
#include "code/compiler.h"
#include "code/compiler_command.h"
#include "code/loading.h"
#include "cuda_api/fatbin.h"
#include "cuda_api/fatbin_choice.h"
#include "kernel_abi.h"

/* Before another compiler is sent to finish: a program that has ended by then needs none, and one that goes on has the
 * cores for its first launches. */
#define HEAD_START_US 500000u
/* Images at once that wait for that; a program that loads more leaves them to the next one. */
#define MAX_UNFINISHED 4u

/* 128 bits of multiply and fold. Not against attackers: they would have to write into the user's own directory. */
struct hash {
    uint64_t low;
    uint64_t high;
    uint64_t length;
};

static void hash_word(struct hash *hash, uint64_t word)
{
    unsigned __int128 product = (unsigned __int128)(hash->low ^ word) * 0x9e3779b97f4a7c15ull;

    hash->low = (uint64_t)product ^ (hash->high + 0xbf58476d1ce4e5b9ull);
    hash->high = (hash->high << 23 | hash->high >> 41) ^ (uint64_t)(product >> 64) ^ word * 0x94d049bb133111ebull;
}

static void hash_mix(void *state, const void *data, size_t bytes)
{
    struct hash *hash = state;
    const uint8_t *at = data;

    hash->length += bytes;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        hash_word(hash, word);
    }
    uint64_t rest = bytes;

    for (size_t i = 0; i < bytes; i++) {
        rest = rest << 8 | at[i];
    }
    hash_word(hash, rest);
}

/* The entries of a fat binary that are no machine code and not useless. False: not a fat binary with PTX for us. */
static bool hash_chosen(struct hash *hash, const uint8_t *image, size_t bytes)
{
    struct fgv_fatbin_choice choice = {.nr_devices = 1, .devices[0].capability = SGP_CAPABILITY};
    struct fgv_fatbin_header header;
    struct fgv_fatbin_entry entry;
    const uint8_t *entries = image + sizeof(header);
    uint64_t next;

    if (bytes < sizeof(header)) {
        return false;
    }
    memcpy(&header, image, sizeof(header));
    if (header.magic != FGV_FATBIN_HEADER_MAGIC || header.header_bytes != sizeof(header) ||
        header.entries_bytes != bytes - sizeof(header) || !fgv_fatbin_choose(&choice, entries, header.entries_bytes) ||
        !choice.devices[0].newest_ptx) {
        return false;
    }
    for (uint64_t at = 0; fgv_fatbin_entry_at(entries, header.entries_bytes, at, &entry, &next); at = next) {
        if (entry.kind != FGV_FATBIN_ELF && fgv_fatbin_is_chosen(&choice, &entry)) {
            hash_mix(hash, entries + at, next - at);
        }
    }
    return true;
}

static void key_of(const void *image, size_t bytes, char key[SGP_CACHE_KEY_CHARACTERS])
{
    struct hash hash = {.low = 0x243f6a8885a308d3ull, .high = 0x13198a2e03707344ull};
    uint32_t abi = SGP_ABI_VERSION;

    hash_mix(&hash, &abi, sizeof(abi));
    sgp_compiler_identify(hash_mix, &hash);
    if (!hash_chosen(&hash, image, bytes)) {
        hash_mix(&hash, image, bytes);
    }
    hash_word(&hash, hash.length);
    hash_word(&hash, 0);
    snprintf(key, SGP_CACHE_KEY_CHARACTERS, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

static bool write_all(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t written = write(fd, data, bytes);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        data += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* A new file of these bytes, which is the caller's to remove. */
static CUresult input_new(const char *directory, const void *image, size_t bytes, char input[PATH_MAX])
{
    CUresult result = CUDA_ERROR_OPERATING_SYSTEM;
    int fd;

    if (snprintf(input, PATH_MAX, "%s/tmp.XXXXXX", directory) >= PATH_MAX) {
        return result;
    }
    fd = mkostemp(input, O_CLOEXEC);
    if (fd < 0) {
        sgp_log("compile", "cannot write into %s: %s", directory, strerror(errno));
        return result;
    }
    if (write_all(fd, image, bytes)) {
        result = CUDA_SUCCESS;
    } else {
        sgp_log("compile", "cannot write %s: %s", input, strerror(errno));
        unlink(input);
    }
    close(fd);
    return result;
}

/* Runs the compiler on a set of images. What it writes is at `output`, which is the caller's to remove. */
static CUresult run_on_set(const char *mode, const struct sgp_image_set *set, char output[PATH_MAX], char *error_text,
                           size_t error_text_bytes)
{
    char directory[PATH_MAX], input[PATH_MAX];
    struct sgp_compiler_task task = {.input = input, .output = output, .mode = mode};
    CUresult result;

    if (!sgp_cache_directory(directory)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    result = input_new(directory, set->start, set->bytes, input);
    if (result) {
        return result;
    }
    if (snprintf(output, PATH_MAX, "%s.so", input) < PATH_MAX) {
        result = sgp_compiler_run(&task, error_text, error_text_bytes);
    } else {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    unlink(input);
    return result;
}

CUresult sgp_link_check(const struct sgp_image_set *set, char *error_text, size_t error_text_bytes)
{
    char output[PATH_MAX];

    return run_on_set("--check", set, output, error_text, error_text_bytes);
}

CUresult sgp_link(const struct sgp_image_set *set, void **text, char *error_text, size_t error_text_bytes)
{
    char output[PATH_MAX] = "";
    CUresult result = run_on_set("--link", set, output, error_text, error_text_bytes);

    if (!result) {
        result = sgp_file_read(output, text, NULL);
    }
    unlink(output);
    return result;
}

/* What this image has, or may get, in the cache. */
struct cached_image {
    char directory[PATH_MAX];
    char key[SGP_CACHE_KEY_CHARACTERS];
    char optimised[PATH_MAX];
    char quick[PATH_MAX];
};

static CUresult cached_image_of(const void *image, size_t bytes, struct cached_image *cached)
{
    if (!sgp_cache_directory(cached->directory)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    key_of(image, bytes, cached->key);
    if (snprintf(cached->optimised, PATH_MAX, "%s/%s.so", cached->directory, cached->key) >= PATH_MAX ||
        snprintf(cached->quick, PATH_MAX, "%s/%s.quick.so", cached->directory, cached->key) >= PATH_MAX) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

static bool has_two_tiers(void)
{
    const char *wanted = getenv("FAIRGV_SOFTGPU_TIERS");

    return !wanted || strcmp(wanted, "1");
}

static bool find(const struct cached_image *cached, struct sgp_compiled *compiled)
{
    const char *optimised = "";
    const char *found = cached->optimised;

    if (!sgp_cache_is_trusted(found)) {
        optimised = found;
        found = cached->quick;
        if (!has_two_tiers() || !sgp_cache_is_trusted(found)) {
            return false;
        }
    }
    strcpy(compiled->path, found);
    strcpy(compiled->optimised, optimised);
    utimensat(AT_FDCWD, found, NULL, 0); /* used now */
    return true;
}

/* Whether a process that makes the optimised object holds the quick one. */
static bool is_locked(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool is_locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

    if (fd >= 0) {
        close(fd);
    }
    return is_locked;
}

static CUresult compile_into(const struct cached_image *cached, const char *mode, const void *image, size_t bytes,
                             char *error_text, size_t error_text_bytes)
{
    char input[PATH_MAX];
    struct sgp_compiler_task task = {
        .input = input,
        .output = cached->optimised,
        .quick = has_two_tiers() ? cached->quick : NULL,
        .mode = mode,
    };
    struct stat status;
    CUresult result = input_new(cached->directory, image, bytes, input);

    if (result) {
        return result;
    }
    if (lstat(cached->quick, &status) == 0 && !sgp_cache_is_trusted(cached->quick)) {
        unlink(cached->quick);
    }
    result = sgp_compiler_run(&task, error_text, error_text_bytes);
    unlink(input);
    return result;
}

/* An image that only its quick object is there of. */
struct unfinished {
    struct cached_image cached;
    size_t bytes;
    uint8_t image[];
};

static _Atomic uint32_t nr_unfinished;

static void unfinished_delete(struct unfinished *unfinished)
{
    free(unfinished);
    atomic_fetch_sub(&nr_unfinished, 1);
}

static void *finish_later(void *argument)
{
    struct unfinished *unfinished = argument;
    const struct cached_image *cached = &unfinished->cached;
    char ignored_text[256];

    usleep(HEAD_START_US);
    if (!sgp_cache_is_trusted(cached->optimised) && !is_locked(cached->quick)) {
        compile_into(cached, "--finish", unfinished->image, unfinished->bytes, ignored_text, sizeof(ignored_text));
    }
    unfinished_delete(unfinished);
    return NULL;
}

/* Has the optimised object made beside the program; where that cannot be, the next program does. */
static void finish(const struct cached_image *cached, const void *image, size_t bytes)
{
    struct unfinished *unfinished = NULL;

    if (atomic_fetch_add(&nr_unfinished, 1) < MAX_UNFINISHED) {
        unfinished = malloc(sizeof(*unfinished) + bytes);
    }
    if (unfinished) {
        unfinished->cached = *cached;
        unfinished->bytes = bytes;
        memcpy(unfinished->image, image, bytes);
    }
    if (!unfinished || !sgp_thread_begin(finish_later, unfinished)) {
        unfinished_delete(unfinished);
    }
}

CUresult sgp_compile(const void *image, size_t bytes, struct sgp_compiled *compiled, char *error_text,
                     size_t error_text_bytes)
{
    struct cached_image cached;
    CUresult result = cached_image_of(image, bytes, &cached);

    if (result) {
        return result;
    }
    /* Twice: between the two names that it looks at, one may have taken the other's place. */
    if (find(&cached, compiled) || find(&cached, compiled)) {
        if (*compiled->optimised && !is_locked(compiled->path)) {
            finish(&cached, image, bytes);
        }
        return CUDA_SUCCESS;
    }
    result = compile_into(&cached, NULL, image, bytes, error_text, error_text_bytes);
    if (!result && !find(&cached, compiled)) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!result) {
        sgp_cache_bound(cached.directory, cached.key);
    }
    return result;
}

bool sgp_compiled_look(const char *optimised)
{
    const char *name = strrchr(optimised, '/') + 1;
    char directory[PATH_MAX];

    if (!sgp_cache_is_trusted(optimised)) {
        return false;
    }
    snprintf(directory, sizeof(directory), "%.*s", (int)(name - optimised), optimised);
    sgp_cache_bound(directory, name);
    return true;
}
