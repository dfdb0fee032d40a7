/*
 * See remote.h. The file has one word that both sides sleep on: the number of a request, and how far it is. Whoever
 * asks holds a lock on the file's first byte meanwhile, so that one asks at a time, and the process asked sees whether
 * he lives; he looks whether its thread lives.
 *
 *     DONE n    -> WRITING n+1    by who asks; also from WRITING and ASKED, of one who died
 *     WRITING n -> ASKED n        by who asks: the request is whole
 *     ASKED n   -> DONE n         by the process asked: there is a result; or by who asks: he waits no longer
 *
 * Whose change fails has lost: a lock that nobody waits for any more is undone. A lock whose asker died is given up;
 * what has been done stays, as after a call that returned.
 */
#include "context/remote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/futex.h"
#include "base/shared_file.h"
#include "base/thread.h"

enum { DONE, WRITING, ASKED, STAGES = 4 };

#define ASKER_BYTE  0
#define NS_PER_MS   UINT64_C(1000000)
#define PATIENCE_NS UINT64_C(1000000000) /* beyond a time-out that the process itself sees to: it may be stopped */

struct page {
    _Atomic uint32_t turn;
    _Atomic uint32_t thread; /* that serves, by its number in its own namespace */
    _Atomic uint32_t state;  /* CUprocessState */
    _Atomic uint32_t result; /* CUresult, once it is done */
    struct sgp_checkpoint_request request;
};

_Static_assert(sizeof(struct page) <= SGP_PAGE_BYTES, "processes map one page");

static struct page *page_map(int file)
{
    void *page = mmap(NULL, SGP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                      (off_t)sgp_shared_head_bytes(SGP_SHARED_REQUESTS));

    return page == MAP_FAILED ? NULL : page;
}

/* ---- the process that is asked ---- */

static struct {
    int file;
    struct page *page;
    sgp_remote_serve *serve;
    uint32_t turn; /* which is served */
} own;

/* Its asker has died, or said that he waits no longer. */
static bool is_given_up(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ASKER_BYTE, .l_len = 1};

    return atomic_load(&own.page->turn) != own.turn || (!fcntl(own.file, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK);
}

static void serve(const struct sgp_checkpoint_request *request)
{
    static const struct sgp_checkpoint_request unlock = {.step = SGP_CHECKPOINT_UNLOCK, .is_valid = 1};
    const CUresult result = own.serve(request, is_given_up);
    uint32_t turn = own.turn;

    atomic_store(&own.page->result, (uint32_t)result);
    if (atomic_compare_exchange_strong(&own.page->turn, &turn, turn - ASKED)) {
        sgp_futex_wake(&own.page->turn);
    } else if (request->step == SGP_CHECKPOINT_LOCK && !result) {
        own.serve(&unlock, NULL);
    }
}

static void *serve_all(void *unused)
{
    (void)unused;
    atomic_store(&own.page->thread, (uint32_t)gettid());
    sgp_futex_wake(&own.page->thread);
    for (;;) {
        struct sgp_checkpoint_request request;

        own.turn = atomic_load(&own.page->turn);
        if (own.turn % STAGES != ASKED) {
            sgp_futex_wait(&own.page->turn, own.turn, 0);
            continue;
        }
        request = own.page->request;
        atomic_thread_fence(memory_order_acquire); /* pairs with the one in ask() */
        if (atomic_load(&own.page->turn) == own.turn) {
            serve(&request);
        }
    }
    return NULL;
}

bool sgp_remote_open(sgp_remote_serve *serve_request)
{
    struct sgp_shared_head head;

    if (own.page) {
        return true; /* an earlier cuInit got this far */
    }
    own.serve = serve_request;
    own.file = sgp_shared_new(&head, SGP_SHARED_REQUESTS, sgp_devices[0].state, SGP_PAGE_BYTES);
    own.page = own.file < 0 ? NULL : page_map(own.file);
    if (!own.page || !sgp_thread_begin(serve_all, NULL)) {
        if (own.page) {
            munmap(own.page, SGP_PAGE_BYTES);
            own.page = NULL;
        }
        if (own.file >= 0) {
            close(own.file);
        }
        return false;
    }
    while (!sgp_remote_thread()) {
        sgp_futex_wait(&own.page->thread, 0, 0);
    }
    return true;
}

void sgp_remote_close_in_child(void)
{
    close(own.file); /* a child is not who is asked */
}

void sgp_remote_show(CUprocessState state)
{
    atomic_store(&own.page->state, (uint32_t)state);
}

int sgp_remote_thread(void)
{
    return (int)atomic_load(&own.page->thread);
}

/* ---- who asks ---- */

/* Another process. */
struct peer {
    int file;
    struct page *page;
    int thread, number; /* thread.h */
};

static void peer_close(const struct peer *peer)
{
    munmap(peer->page, SGP_PAGE_BYTES);
    close(peer->thread);
    close(peer->file);
}

/* Whether this descriptor of the process is its file, not one that a child has from its parent. */
static bool peer_try(int process, uint64_t descriptor, struct peer *peer)
{
    struct sgp_shared_head head;

    peer->file = sgp_shared_open_at((uint64_t)process, descriptor, SGP_SHARED_REQUESTS, &head);
    if (peer->file < 0) {
        return false;
    }
    peer->page = head.bytes == SGP_PAGE_BYTES ? page_map(peer->file) : NULL;
    peer->thread = peer->page ? sgp_thread_find(process, (int)atomic_load(&peer->page->thread), &peer->number) : -1;
    if (peer->thread >= 0) {
        return true;
    }
    if (peer->page) {
        munmap(peer->page, SGP_PAGE_BYTES);
    }
    close(peer->file);
    return false;
}

static CUresult peer_open(int process, struct peer *peer)
{
    const struct dirent *entry;
    bool is_found = false, is_refused = false;
    char path[64];
    DIR *descriptors;

    snprintf(path, sizeof(path), "/proc/%d/fd", process);
    descriptors = process > 0 ? opendir(path) : NULL;
    if (!descriptors) {
        return CUDA_ERROR_OPERATING_SYSTEM; /* there is no such process, or it is another user's */
    }
    while (!is_found && (entry = readdir(descriptors))) {
        errno = 0;
        is_found = *entry->d_name != '.' && peer_try(process, strtoull(entry->d_name, NULL, 10), peer);
        is_refused = is_refused || errno == EACCES;
    }
    closedir(descriptors);
    return is_found ? CUDA_SUCCESS : is_refused ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_NOT_INITIALIZED;
}

/* Whether to wait on. */
static CUresult look(const struct peer *peer, uint64_t end_ns)
{
    if (!sgp_thread_lives(peer->thread)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return sgp_now_ns() < end_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Until nobody else asks. */
static CUresult lock(const struct peer *peer, uint64_t end_ns)
{
    CUresult result = CUDA_SUCCESS;

    while (!result && sgp_state_lock_bytes(peer->file, F_OFD_SETLK, F_WRLCK, ASKER_BYTE, 1)) {
        result = look(peer, end_ns);
        sgp_futex_wait(&peer->page->turn, atomic_load(&peer->page->turn), SGP_LOOK_NS);
    }
    return result;
}

static void unlock(const struct peer *peer)
{
    /* Closing is not enough: a child of this process may have the descriptor, too. */
    sgp_state_lock_bytes(peer->file, F_OFD_SETLK, F_UNLCK, ASKER_BYTE, 1);
}

/* With the lock. */
static CUresult ask(const struct peer *peer, const struct sgp_checkpoint_request *request, uint64_t end_ns)
{
    struct page *page = peer->page;
    const uint32_t done = (atomic_load(&page->turn) / STAGES + 1) * STAGES;
    uint32_t turn = done + ASKED, said;

    atomic_store(&page->turn, done + WRITING);
    atomic_thread_fence(memory_order_release); /* pairs with the one in serve_all() */
    page->request = *request;
    atomic_store(&page->turn, turn);
    sgp_futex_wake(&page->turn);
    while (atomic_load(&page->turn) == done + ASKED) {
        const CUresult result = look(peer, end_ns);

        if (result == CUDA_ERROR_OPERATING_SYSTEM ||
            (result && atomic_compare_exchange_strong(&page->turn, &turn, done))) {
            return result;
        }
        sgp_futex_wait(&page->turn, done + ASKED, SGP_LOOK_NS);
    }
    said = atomic_load(&page->result);
    return said < CUDA_ERROR_UNKNOWN ? (CUresult)said : CUDA_ERROR_UNKNOWN;
}

CUresult sgp_remote_ask(int process, const struct sgp_checkpoint_request *request)
{
    const bool has_end = request->step == SGP_CHECKPOINT_LOCK && request->timeout_ms;
    const uint64_t end_ns =
        has_end ? sgp_now_ns() + request->timeout_ms * NS_PER_MS + PATIENCE_NS : UINT64_MAX; /* never */
    struct peer peer;
    CUresult result = peer_open(process, &peer);

    if (result) {
        return result;
    }
    result = lock(&peer, end_ns);
    if (!result) {
        result = ask(&peer, request, end_ns);
        unlock(&peer);
    }
    peer_close(&peer);
    return result;
}

CUresult sgp_remote_look(int process, int *thread, CUprocessState *state)
{
    struct peer peer;
    CUresult result = peer_open(process, &peer);
    uint32_t said;

    if (result) {
        return result;
    }
    said = atomic_load(&peer.page->state);
    *state = said < CU_PROCESS_STATE_FAILED ? (CUprocessState)said : CU_PROCESS_STATE_FAILED;
    *thread = peer.number;
    peer_close(&peer);
    return CUDA_SUCCESS;
}
