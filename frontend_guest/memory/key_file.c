/* See key_file.h. */
#include "memory/key_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6d656d7079687646)
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int fgv_key_file_new(enum fgv_key_kind kind, const uint64_t *words)
{
    const struct fgv_key_file content = {.magic = MAGIC, .kind = kind, .words = {words[0], words[1]}};
    const int file = memfd_create("fairgv-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) {
        return -1;
    }
    if (write(file, &content, sizeof(content)) != (ssize_t)sizeof(content) || fcntl(file, F_ADD_SEALS, SEALS) != 0) {
        close(file);
        return -1;
    }
    return file;
}

/* The seals first: no other kind of file has any, and reading one may take from it. */
bool fgv_key_file_read(int file, struct fgv_key_file *content)
{
    const int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS &&
           pread(file, content, sizeof(*content), 0) == (ssize_t)sizeof(*content) && content->magic == MAGIC;
}
