/* See shared_file.h. */
#include "base/shared_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MAGIC UINT64_C(0x6572616873504753)
#define FILE_NAME  "softgpu-shared"
#define FILE_LINK  "/memfd:" FILE_NAME
#define SEALS      (F_SEAL_SHRINK | F_SEAL_SEAL)
#define MAX_BYTES  (UINT64_C(1) << 46)

_Static_assert(sizeof(struct sgp_shared_head) == 56, "processes of one device agree on the head");

bool sgp_shared_write(int file, const struct sgp_shared_head *head)
{
    return pwrite(file, head, sizeof(*head), 0) == (ssize_t)sizeof(*head);
}

int sgp_shared_new(struct sgp_shared_head *head, enum sgp_shared_kind kind, const struct sgp_state *state,
                   uint64_t bytes)
{
    int file = memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    *head = (struct sgp_shared_head){.magic = HEAD_MAGIC, .kind = kind, .bytes = bytes};
    sgp_state_identity(state, head->device);
    if (file >= 0 && ftruncate(file, (off_t)(sgp_shared_head_bytes(kind) + bytes)) == 0 &&
        fcntl(file, F_ADD_SEALS, SEALS) == 0 && sgp_shared_write(file, head)) {
        return file;
    }
    if (file >= 0) {
        close(file);
    }
    return -1;
}

bool sgp_shared_read(int file, struct sgp_shared_head *head)
{
    int seals = fcntl(file, F_GET_SEALS); /* before anything is read: of no other kind of file it has an answer */
    struct stat status;

    return seals >= 0 && (seals & SEALS) == SEALS && !fstat(file, &status) &&
           pread(file, head, sizeof(*head), 0) == (ssize_t)sizeof(*head) && head->magic == HEAD_MAGIC &&
           head->bytes <= MAX_BYTES && sgp_shared_head_bytes(head->kind) + head->bytes <= (uint64_t)status.st_size;
}

bool sgp_shared_place_of(int file, struct sgp_shared_place *place)
{
    struct stat status;

    if (fstat(file, &status)) {
        return false;
    }
    *place = (struct sgp_shared_place){
        .process = (uint64_t)getpid(), .descriptor = (uint64_t)file, .inode = (uint64_t)status.st_ino};
    return true;
}

int sgp_shared_open_at(uint64_t process, uint64_t descriptor, enum sgp_shared_kind kind, struct sgp_shared_head *head)
{
    char path[64], target[sizeof(FILE_LINK)];
    int file;

    snprintf(path, sizeof(path), "/proc/%llu/fd/%llu", (unsigned long long)process, (unsigned long long)descriptor);
    /* Looked at before it is opened: a forged place may name anything, and opening a device or a pipe has effects. */
    if (readlink(path, target, sizeof(target)) != (ssize_t)sizeof(target) ||
        strncmp(target, FILE_LINK, sizeof(FILE_LINK) - 1)) {
        return -1;
    }
    file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && (!sgp_shared_read(file, head) || head->kind != kind)) {
        close(file);
        return -1;
    }
    return file;
}

int sgp_shared_open(const struct sgp_shared_place *place, enum sgp_shared_kind kind, struct sgp_shared_head *head)
{
    int file = sgp_shared_open_at(place->process, place->descriptor, kind, head);
    struct stat status;

    if (file >= 0 && (fstat(file, &status) || (uint64_t)status.st_ino != place->inode)) {
        close(file);
        return -1;
    }
    return file;
}
