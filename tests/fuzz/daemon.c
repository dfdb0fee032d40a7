/*
 * See daemon.h. The page has two vGPUs with a worker's slot each, and the shelf one place: what was put last is what is
 * found. The guest is in the same process, and has its region mapped elsewhere.
 */
#define _GNU_SOURCE
#include "client/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls/state.h"
#include "client/attach.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/state.h"
#include "daemon.h"
#include "ivshmem/heap.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "loop/face.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/room.h"
#include "replay/replay.h"
#include "turn/state.h"

#define SLICE_NS    6000000
#define QUOTA_BYTES (UINT64_C(1) << 30)
#define MOST_NS     UINT64_C(10000000000)
#define MOST_FILES  4u
#define MOST_FILE   (UINT64_C(32) << 20)

static struct fgw_control *control, *own_page;
static int objects[FGW_CONTROL_OBJECTS];
static int region_file, bells[2], sockets[2]; /* of the daemon, of the worker */
static struct fgv_region region;
static uint64_t ring_offset;
static struct fgv_region_header honest;
static struct shared *shared;
static struct fgw_key put; /* on the shelf, with a file for each extent */
static uint64_t put_bytes;
static uint32_t nr_put;

static void make_page(void)
{
    for (uint32_t i = 0; i < FGW_CONTROL_OBJECTS; i++) {
        objects[i] = memfd_create("control", 0);
    }
    control = fgw_control_format(objects, SLICE_NS, true);
    for (uint32_t vgpu = 0; vgpu < 2; vgpu++) {
        fgw_control_vgpu_take(control, QUOTA_BYTES);
        fgw_control_worker_assign(control, (uint32_t)fgw_control_worker_take(control), 1, vgpu, 0);
    }
}

static uint64_t offset_of(const void *part)
{
    return (uint64_t)((const uint8_t *)part - region.base);
}

struct shared *daemon_begin(void)
{
    make_page();
    region_file = memfd_create("region", 0);
    bells[0] = eventfd(0, EFD_NONBLOCK);
    bells[1] = eventfd(0, EFD_NONBLOCK);
    if (ftruncate(region_file, FGV_REGION_MIN_BYTES) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets) != 0) {
        abort();
    }
    uint8_t *base = mmap(NULL, FGV_REGION_MIN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, region_file, 0);
    if (base == MAP_FAILED ||
        !fgv_region_format(base, FGV_REGION_MIN_BYTES, FGV_TABLE_HASH, FGV_WAKE_POLL, "", 0, &region)) {
        abort();
    }
    shared = (struct shared *)(base + fgv_heap_allocate(&region, 0, sizeof(*shared)));
    const uint64_t pinned = FUZZ_REGION + offset_of(shared->pinned);
    if (pinned != FUZZ_PINNED) {
        fprintf(stderr, "FUZZ_PINNED is %#llx\n", (unsigned long long)pinned);
        abort();
    }
    ring_offset = fgv_heap_allocate(&region, 0, sizeof(struct fgv_ring_control) + FGV_RING_MIN_BYTES);
    honest = *region.header;
    return shared;
}

/* As a guest's library fills its entry. */
static void fill_entry(struct fgv_client *client, bool has_bells)
{
    *client = (struct fgv_client){
        .address = FUZZ_REGION,
        .ring_offset = ring_offset,
        .responses_offset = offset_of(shared->responses),
        .chunks_offset = offset_of(shared->words),
        .arena_offset = offset_of(shared->arena),
        .ring_bytes = FGV_RING_MIN_BYTES,
        .nr_responses = 16,
        .nr_chunks = DAEMON_NR_CHUNKS,
        .chunk_bytes = DAEMON_CHUNK_BYTES,
        .program = "fuzzed",
        .has_bell = has_bells,
        .state = FGV_CLIENT_HELLO,
    };
}

static void assign(struct fgw_assignment *assignment, uint32_t which, uint64_t value)
{
    switch (which) {
    case FUZZ_CLIENT:
        assignment->client = (uint32_t)value;
        break;
    case FUZZ_VGPU:
        assignment->vgpu = (uint32_t)value;
        break;
    case FUZZ_SLOT:
        assignment->slot = (uint32_t)value;
        break;
    case FUZZ_DEVICE:
        assignment->device = (int32_t)value;
        break;
    case FUZZ_REGION_BYTES:
        assignment->region_bytes = value;
        break;
    case FUZZ_TABLE:
        assignment->table_hash = value;
        break;
    case FUZZ_NR_BELLS:
        assignment->nr_guest_bells = (uint32_t)value;
        break;
    case FUZZ_REGION_FD:
        assignment->region_fd = value % 2 != 0 ? -1 : objects[0];
        break;
    default:
        break;
    }
}

static void patch(struct fgw_assignment *assignment, const uint8_t *patches, size_t nr_bytes)
{
    struct fuzz_patch one;
    for (; nr_bytes >= sizeof(one); patches += sizeof(one), nr_bytes -= sizeof(one)) {
        memcpy(&one, patches, sizeof(one));
        if (one.offset >= FUZZ_OF_ASSIGNMENT) {
            assign(assignment, one.offset - FUZZ_OF_ASSIGNMENT, one.value);
            continue;
        }
        const bool is_entrys = one.offset >= FUZZ_OF_ENTRY;
        const uint32_t offset = one.offset - (is_entrys ? FUZZ_OF_ENTRY : 0);
        const size_t room = is_entrys ? sizeof(struct fgv_client) : sizeof(struct fgv_region_header);
        if (one.nr_bytes <= sizeof(one.value) && offset <= room - one.nr_bytes) {
            memcpy((is_entrys ? (uint8_t *)region.clients : region.base) + offset, &one.value, one.nr_bytes);
        }
    }
}

/* What the daemon decided for the input before. */
static void forget(void)
{
    uint8_t nothing[64];
    while (recv(sockets[0], nothing, sizeof(nothing), 0) > 0 || recv(sockets[1], nothing, sizeof(nothing), 0) > 0) {
    }
    for (uint32_t vgpu = 0; vgpu < 2; vgpu++) {
        fgw_control_set_suspended(control, vgpu, false);
        fgw_control_set_quota(control, vgpu, QUOTA_BYTES);
    }
    fgw_control_set_capacity(control, 0, 0);
    nr_put = 0;
}

/* Of one that has no client: its process would end. */
static void let_go(struct fgw_worker *worker)
{
    if (worker->client) {
        munmap(worker->region.base, FGV_REGION_MIN_BYTES);
    }
    fgw_replay_end(worker);
    fgw_handles_end(worker);
    fgw_context_cool(worker);
    if (worker->grantee.control) {
        fgw_grantee_detach(&worker->grantee);
    }
    fgw_the_worker = NULL;
    free(worker);
}

static void close_bells(const struct fgv_host_bell *bell)
{
    const int files[] = {bell->guest, bell->own, bell->ready};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (files[i] > 0) {
            close(files[i]);
        }
    }
}

bool daemon_give_client(struct fgw_worker *worker, const struct fuzz_start *start, const uint8_t *patches,
                        size_t nr_bytes)
{
    char error[256];
    const bool has_bells = (start->flags & FUZZ_BELLS) != 0;
    forget();
    *region.header = honest;
    memset(shared, 0, sizeof(*shared));
    for (uint32_t i = 0; i < 16; i++) {
        shared->responses[i].state = 1;
    }
    fill_entry(&region.clients[0], has_bells);
    region.header->wake = has_bells ? FGV_WAKE_BELL : FGV_WAKE_POLL;
    control->decided->is_preemptive = (start->flags & FUZZ_PREEMPTIVE) != 0;
    own_page = (start->flags & FUZZ_OWN_PAGE) != 0 ? fgw_control_open(objects, 0) : NULL;
    struct fgw_assignment assignment = {.region_fd = region_file,
                                        .region_bytes = FGV_REGION_MIN_BYTES,
                                        .table_hash = FGV_TABLE_HASH,
                                        .daemon = sockets[1],
                                        .control = own_page ? own_page : control,
                                        .own_bell = bells[0],
                                        .nr_guest_bells = has_bells,
                                        .guest_bells = {bells[1]}};
    patch(&assignment, patches, nr_bytes);
    if (fgw_worker_attach(worker, &assignment, error, sizeof(error)) == CUDA_SUCCESS) {
        return true;
    }
    close_bells(&worker->bell);
    let_go(worker);
    if (own_page) {
        fgw_control_close(own_page);
    }
    return false;
}

/* With files of memory that nobody can take away. */
static void send_message(const uint8_t *bytes, size_t nr_bytes, uint32_t nr_files, uint64_t file_bytes)
{
    _Alignas(struct cmsghdr) char head[CMSG_SPACE(MOST_FILES * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = nr_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int files[MOST_FILES];
    for (uint32_t i = 0; i < nr_files; i++) {
        files[i] = memfd_create("told", MFD_ALLOW_SEALING);
        if (ftruncate(files[i], (off_t)file_bytes) == 0 && file_bytes % 2 == 0) {
            fcntl(files[i], F_ADD_SEALS, F_SEAL_SHRINK);
        }
    }
    if (nr_files != 0) {
        message.msg_control = head;
        message.msg_controllen = CMSG_SPACE(nr_files * sizeof(int));
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(nr_files * sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), files, nr_files * sizeof(int));
    }
    sendmsg(sockets[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    for (uint32_t i = 0; i < nr_files; i++) {
        close(files[i]);
    }
}

void daemon_tell(struct fgw_worker *worker, const uint8_t *data, size_t nr_bytes)
{
    struct fuzz_told told;
    if (nr_bytes < sizeof(told)) {
        return;
    }
    memcpy(&told, data, sizeof(told));
    const uint32_t vgpu = worker->grantee.number - 1, slot = worker->grantee.slot_index;
    switch (told.word % FUZZ_NR_WORDS) {
    case FUZZ_ROOM:
        fgw_control_set_capacity(control, told.values[0], told.values[1]);
        fgw_control_set_target(control, slot, told.values[2]);
        break;
    case FUZZ_SUSPEND:
        fgw_control_set_suspended(control, vgpu, told.values[0] % 2 != 0);
        break;
    case FUZZ_QUOTA:
        fgw_control_set_quota(control, vgpu, told.values[0]);
        break;
    case FUZZ_TIME:
        fuzz_pass(told.values[0] % MOST_NS);
        break;
    case FUZZ_PAGE:
        if (own_page && worker->turn->phase == FGW_PHASE_OUT && /* it stands */
            fgw_client_change_page(worker, objects, told.values[0], told.values[1])) {
            own_page = worker->grantee.control;
        }
        break;
    default:
        send_message(data + sizeof(told), nr_bytes - sizeof(told), (uint32_t)(told.values[0] % (MOST_FILES + 1)),
                     told.values[1] % (MOST_FILE + 1));
        break;
    }
}

void daemon_answer(void)
{
    struct fgw_shelf_message asked;
    while (recv(sockets[0], &asked, sizeof(asked), MSG_DONTWAIT) == (ssize_t)sizeof(asked)) {
        if (asked.word == FGW_SHELF_PUT) {
            put = asked.key;
            put_bytes = asked.bytes;
            nr_put = 1;
        } else if (asked.word == FGW_SHELF_FIND) {
            const bool is_there = nr_put != 0 && memcmp(&put, &asked.key, sizeof(put)) == 0;
            const struct fgw_shelf_message found = {
                .word = FGW_SHELF_FOUND, .key = asked.key, .bytes = is_there ? put_bytes : 0};
            send_message((const uint8_t *)&found, sizeof(found), is_there, FGV_PAGE_BYTES);
        }
    }
}

void daemon_calm(struct fgw_worker *worker)
{
    fgw_control_set_suspended(control, worker->grantee.number - 1, false);
    fgw_control_set_target(control, worker->grantee.slot_index, UINT64_MAX);
}

void daemon_run(struct fgw_worker *worker)
{
    const struct fgv_host_bell bell = worker->bell;
    const uint64_t bytes = FGV_REGION_MIN_BYTES + worker->region.window.bytes;
    fgw_daemon_forget(worker);
    fgw_daemon_forget_page(worker);
    fgw_worker_run(worker);
    close_bells(&bell);
    munmap((void *)(uintptr_t)FUZZ_REGION, bytes);
    if (own_page) {
        fgw_control_close(own_page);
        own_page = NULL;
    }
}
