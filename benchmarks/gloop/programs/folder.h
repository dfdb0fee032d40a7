/* Where a port's files lie: where --folder says, or in a folder of its own that goes when the program ends. */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_FOLDER_H
#define BENCHMARKS_GLOOP_PROGRAMS_FOLDER_H

#include <errno.h>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "common.h"

static struct {
    std::string path;
    std::vector<std::string> made;
    bool is_own;
} folder;

static void folder_remove(void)
{
    std::error_code ignored;
    for (const std::string &path : folder.made) {
        std::filesystem::remove(path, ignored);
    }
    if (folder.is_own) {
        std::filesystem::remove(folder.path, ignored);
    }
}

/* NULL: one of its own. Before any file. */
static void folder_open(const char *path)
{
    std::string own = (std::filesystem::temp_directory_path() / "gloop-port-XXXXXX").string();
    folder.is_own = path == NULL;
    if (folder.is_own && !mkdtemp(own.data())) {
        benchmark_fail("%s cannot be made: %s", own.c_str(), strerror(errno));
    }
    folder.path = path ? path : own;
    atexit(folder_remove);
}

static void folder_read(const std::string &path, void *bytes, size_t nr_bytes)
{
    int file = open(path.c_str(), O_RDONLY);
    if (file < 0 || read(file, bytes, nr_bytes) != (ssize_t)nr_bytes) {
        benchmark_fail("%s cannot be read: %s", path.c_str(), strerror(errno));
    }
    close(file);
}

static void folder_write(const std::string &path, const void *bytes, size_t nr_bytes)
{
    int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, bytes, nr_bytes) != (ssize_t)nr_bytes) {
        benchmark_fail("%s cannot be written: %s", path.c_str(), strerror(errno));
    }
    close(file);
}

/* Returns the path of a file that holds this and goes with the program. */
static std::string folder_make(const std::string &name, const void *bytes, size_t nr_bytes)
{
    std::string path = folder.path + "/" + name;
    folder.made.push_back(path);
    folder_write(path, bytes, nr_bytes);
    return path;
}

#endif
