/*
 * The cache of compiled images: one shared object per image, named by a hash of the image, of the compiler and of the
 * interface between both, in a directory that belongs to the user alone. What is loaded from there runs in this
 * process, so a directory or file that somebody else could have written is not used.
 *
 * Of a fat binary only the PTX that the compiler may choose is hashed: it is one image, whoever has left machine code
 * out of it.
 *
 * Objects appear by rename, so that any number of processes may compile the same image at once, and a killed one leaves
 * only temporary files, which are swept up later. When the directory outgrows its bound, what was used longest ago goes
 * first.
 *
 * Of a large image the compiler makes a quick object first, under a name of its own, and stays behind to make the
 * optimised one; it keeps the quick one locked meanwhile. A quick object that nobody works behind is one whose compiler
 * was killed: another is sent to finish.
 */
#include "code/compile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "code/compiler.h"
#include "code/loading.h"
#include "cuda_api/fatbin.h"
#include "cuda_api/fatbin_choice.h"
#include "kernel_abi.h"

#define DEFAULT_CACHE_BYTES (1ull << 30)
#define ABANDONED_SECONDS   3600
#define KEY_CHARACTERS      33

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

static void key_of(const void *image, size_t bytes, char key[KEY_CHARACTERS])
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
    snprintf(key, KEY_CHARACTERS, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
}

static bool is_private_directory(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & 022);
}

/* As mkdir -p, what is made with access for the user alone. */
static bool make_directory(const char *path)
{
    char partial[PATH_MAX];

    if (snprintf(partial, sizeof(partial), "%s", path) >= (int)sizeof(partial)) {
        return false;
    }
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(partial, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES) {
            return false;
        }
        *slash = '/';
    }
    if (mkdir(partial, 0700) && errno != EEXIST) {
        return false;
    }
    return is_private_directory(partial) && access(partial, W_OK | X_OK) == 0;
}

static bool try_directory(char path[PATH_MAX], const char *base, const char *suffix)
{
    return base && *base == '/' && snprintf(path, PATH_MAX, "%s%s", base, suffix) < PATH_MAX && make_directory(path);
}

static bool cache_directory(char path[PATH_MAX])
{
    const char *wanted = getenv("FAIRGV_SOFTGPU_CACHE");

    if (wanted && *wanted) {
        return try_directory(path, wanted, "");
    }
    if (try_directory(path, getenv("XDG_CACHE_HOME"), "/fairgv/softgpu") ||
        try_directory(path, getenv("HOME"), "/.cache/fairgv/softgpu")) {
        return true;
    }
    snprintf(path, PATH_MAX, "/tmp/fairgv-softgpu-%u", (unsigned int)geteuid());
    return make_directory(path);
}

static bool is_trusted_file(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & 022) && status.st_size > 0;
}

static uint64_t cache_bound_bytes(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_CACHE_BYTES");
    unsigned long long value = text ? strtoull(text, NULL, 10) : 0;

    return value ? value : DEFAULT_CACHE_BYTES;
}

struct cached_file {
    char name[64];
    uint64_t bytes;
    int64_t used_ns;
};

static int by_age(const void *left, const void *right)
{
    const struct cached_file *a = left, *b = right;

    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

/* A folder that a killed compiler worked in: files, one level. */
static void sweep_folder(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!folder) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* What a killed process left behind; true: there was nothing more to know about this entry. */
static bool sweep(int directory, const char *name, const struct stat *status)
{
    bool is_old = time(NULL) - status->st_mtime > ABANDONED_SECONDS;

    if (S_ISDIR(status->st_mode) && !strncmp(name, ".softgpu-", 9) && is_old) {
        sweep_folder(directory, name);
    } else if (S_ISREG(status->st_mode) && !strncmp(name, "tmp.", 4) && is_old) {
        unlinkat(directory, name, 0);
    }
    return !S_ISREG(status->st_mode) || !strncmp(name, "tmp.", 4);
}

/* Sorted, the longest unused first; removes what killed processes left on the way. */
static size_t cache_list(DIR *directory, struct cached_file **files, uint64_t *bytes)
{
    size_t nr = 0, max = 0;
    struct dirent *entry;
    struct stat status;

    while ((entry = readdir(directory))) {
        size_t length = strlen(entry->d_name);

        if (length >= sizeof((*files)->name) ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
            sweep(dirfd(directory), entry->d_name, &status)) {
            continue;
        }
        if (length < 4 || strcmp(entry->d_name + length - 3, ".so")) {
            continue;
        }
        if (nr == max) {
            struct cached_file *grown = realloc(*files, (max = max ? 2 * max : 64) * sizeof(*grown));

            if (!grown) {
                break;
            }
            *files = grown;
        }
        memcpy((*files)[nr].name, entry->d_name, length + 1);
        (*files)[nr].bytes = (uint64_t)status.st_size;
        (*files)[nr++].used_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
        *bytes += (uint64_t)status.st_size;
    }
    return nr;
}

static void cache_bound(const char *path, const char *keep)
{
    DIR *directory = opendir(path);
    struct cached_file *files = NULL;
    uint64_t bytes = 0, bound = cache_bound_bytes();
    size_t nr;

    if (!directory) {
        return;
    }
    nr = cache_list(directory, &files, &bytes);
    if (bytes > bound) {
        qsort(files, nr, sizeof(*files), by_age);
        for (size_t i = 0; i < nr && bytes > bound; i++) {
            if (strncmp(files[i].name, keep, KEY_CHARACTERS - 1) && unlinkat(dirfd(directory), files[i].name, 0) == 0) {
                bytes -= files[i].bytes;
            }
        }
    }
    free(files);
    closedir(directory);
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

static bool find_directory(char directory[PATH_MAX])
{
    bool is_found = cache_directory(directory);

    if (!is_found) {
        sgp_log("compile",
                "no directory for compiled kernels that belongs to this user alone; FAIRGV_SOFTGPU_CACHE may name one");
    }
    return is_found;
}

/* Runs the compiler on a set of images. What it writes is at `output`, which is the caller's to remove. */
static CUresult run_on_set(const char *mode, const struct sgp_image_set *set, char output[PATH_MAX], char *error_text,
                           size_t error_text_bytes)
{
    char directory[PATH_MAX], input[PATH_MAX];
    struct sgp_compiler_task task = {.input = input, .output = output, .mode = mode};
    CUresult result;

    if (!find_directory(directory)) {
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
    char key[KEY_CHARACTERS];
    char optimised[PATH_MAX];
    char quick[PATH_MAX];
};

static CUresult cached_image_of(const void *image, size_t bytes, struct cached_image *cached)
{
    if (!find_directory(cached->directory)) {
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

    if (!is_trusted_file(found)) {
        optimised = found;
        found = cached->quick;
        if (!has_two_tiers() || !is_trusted_file(found)) {
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
    if (lstat(cached->quick, &status) == 0 && !is_trusted_file(cached->quick)) {
        unlink(cached->quick);
    }
    result = sgp_compiler_run(&task, error_text, error_text_bytes);
    unlink(input);
    return result;
}

CUresult sgp_compile(const void *image, size_t bytes, struct sgp_compiled *compiled, char *error_text,
                     size_t error_text_bytes)
{
    char ignored_text[256];
    struct cached_image cached;
    CUresult result = cached_image_of(image, bytes, &cached);

    if (result) {
        return result;
    }
    /* Twice: between the two names that it looks at, one may have taken the other's place. */
    if (find(&cached, compiled) || find(&cached, compiled)) {
        if (*compiled->optimised && !is_locked(compiled->path)) {
            compile_into(&cached, "--finish", image, bytes, ignored_text, sizeof(ignored_text));
        }
        return CUDA_SUCCESS;
    }
    result = compile_into(&cached, NULL, image, bytes, error_text, error_text_bytes);
    if (!result && !find(&cached, compiled)) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!result) {
        cache_bound(cached.directory, cached.key);
    }
    return result;
}

bool sgp_compiled_look(const char *optimised)
{
    const char *name = strrchr(optimised, '/') + 1;
    char directory[PATH_MAX];

    if (!is_trusted_file(optimised)) {
        return false;
    }
    snprintf(directory, sizeof(directory), "%.*s", (int)(name - optimised), optimised);
    cache_bound(directory, name);
    return true;
}
