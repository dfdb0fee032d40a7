/*
 * A shared event is two numbers: records that were made, and the last that is complete. Who waits for another process
 * sleeps on the second one, and looks now and then whether that process lives: what a dead one was to do is over.
 *
 * A process may write what it likes into the words. Others then wait too long or not at all, and nothing else.
 *
 * Wrong when: processes record one event at the same time, and the one that did so last dies: waits for the others end.
 */
#include "stream/shared_event.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/futex.h"
#include "stream/queue.h"

struct words {
    _Atomic uint32_t nr_recorded;
    _Atomic uint32_t nr_completed; /* what processes sleep on */
    _Atomic uint64_t recorder;     /* of the last record: its id in the device's file; 0: nobody yet */
};

struct sgp_shared_event {
    int file;
    uint64_t inode;
    bool is_imported;
    struct sgp_device *device;
    struct words *words;
};

/* Takes the file over; NULL: it cannot be mapped, and is closed. */
static struct sgp_shared_event *shared_of(int file, struct sgp_device *device, bool is_imported)
{
    struct sgp_shared_event *shared = calloc(1, sizeof(*shared));
    struct sgp_shared_place place = {0};
    void *words = MAP_FAILED;

    if (shared && sgp_shared_place_of(file, &place)) {
        words = mmap(NULL, SGP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)SGP_SHARED_HEAD_BYTES);
    }
    if (words == MAP_FAILED) {
        free(shared);
        close(file);
        return NULL;
    }
    *shared = (struct sgp_shared_event){
        .file = file, .inode = place.inode, .is_imported = is_imported, .device = device, .words = words};
    return shared;
}

struct sgp_shared_event *sgp_shared_event_new(struct sgp_device *device)
{
    struct sgp_shared_head head;
    int file = sgp_shared_new(&head, SGP_SHARED_EVENT, device->state, SGP_PAGE_BYTES);

    return file >= 0 ? shared_of(file, device, false) : NULL;
}

/* The event's file: by what the context has open already, which works when who made it is gone, or where it is. */
struct sgp_shared_event *sgp_shared_event_open(const struct CUctx_st *context, const struct sgp_shared_place *place)
{
    struct sgp_shared_head head;
    struct sgp_device *device;
    int file = -1;

    for (const struct CUevent_st *other = context->events; other && file < 0; other = other->next) {
        if (other->shared && other->shared->inode == place->inode) {
            file = dup(other->shared->file);
        }
    }
    if (file < 0) {
        file = sgp_shared_open(place, SGP_SHARED_EVENT, &head);
    } else if (!sgp_shared_read(file, &head)) {
        close(file);
        file = -1;
    }
    if (file < 0) {
        return NULL;
    }
    device = sgp_device_of(head.device);
    if (!device || head.bytes < SGP_PAGE_BYTES) {
        close(file);
        return NULL;
    }
    return shared_of(file, device, true);
}

bool sgp_shared_event_place(const struct sgp_shared_event *shared, struct sgp_shared_place *place)
{
    return !shared->is_imported && sgp_shared_place_of(shared->file, place);
}

void sgp_shared_event_end(struct sgp_shared_event *shared)
{
    munmap(shared->words, SGP_PAGE_BYTES);
    close(shared->file);
    free(shared);
}

uint32_t sgp_shared_event_record(struct sgp_shared_event *shared)
{
    struct sgp_state_holder self;

    /* Where no slot is free nobody can ask for this process, and whoever waits believes it to live. */
    atomic_store(&shared->words->recorder, sgp_state_self(shared->device->state, &self) ? self.id : 0);
    return atomic_fetch_add(&shared->words->nr_recorded, 1) + 1;
}

/* Numbers may wrap. */
static bool has_reached(uint32_t number, uint32_t wanted)
{
    return (int32_t)(number - wanted) >= 0;
}

void sgp_shared_event_complete(struct sgp_shared_event *shared, uint32_t number)
{
    uint32_t before = atomic_load(&shared->words->nr_completed);

    while (!has_reached(before, number)) {
        if (atomic_compare_exchange_weak(&shared->words->nr_completed, &before, number)) {
            sgp_futex_wake(&shared->words->nr_completed);
            break;
        }
    }
}

static bool recorder_lives(const struct sgp_shared_event *shared)
{
    const uint64_t id = atomic_load(&shared->words->recorder);
    const struct sgp_state_holder recorder = {.slot = id % SGP_STATE_NR_SLOTS, .id = id};

    return !id || sgp_state_lives(shared->device->state, &recorder);
}

static bool is_reached(const struct sgp_shared_event *shared, uint32_t number)
{
    return has_reached(atomic_load(&shared->words->nr_completed), number);
}

bool sgp_shared_event_is_complete(const struct sgp_shared_event *shared)
{
    return is_reached(shared, atomic_load(&shared->words->nr_recorded)) || !recorder_lives(shared);
}

/* Without the lock, but for looks. The event stays while this lasts. */
static void wait_for(struct sgp_shared_event *shared, uint32_t number, const struct CUctx_st *context)
{
    bool goes_on = true;

    while (goes_on) {
        uint32_t seen = atomic_load(&shared->words->nr_completed);

        if (has_reached(seen, number)) {
            return;
        }
        if (!sgp_futex_wait(&shared->words->nr_completed, seen, SGP_LOOK_NS)) {
            sgp_lock();
            goes_on = !context->error && !context->is_ending && recorder_lives(shared);
            sgp_unlock();
        }
    }
}

void sgp_shared_event_synchronize(struct CUevent_st *event)
{
    uint32_t number = atomic_load(&event->shared->words->nr_recorded);

    sgp_object_keep(event);
    sgp_unlock();
    wait_for(event->shared, number, event->object.context);
    sgp_lock();
    sgp_object_release(event);
}

struct wait_command {
    struct sgp_command command;
    struct CUevent_st *event;
    const struct CUctx_st *context; /* of the stream, which the queue holds */
    uint32_t number;
};

static CUresult wait_run(struct sgp_command *command)
{
    const struct wait_command *wait = (struct wait_command *)command;

    wait_for(wait->event->shared, wait->number, wait->context);
    return CUDA_SUCCESS;
}

static void wait_finish(struct sgp_command *command)
{
    sgp_object_release(((struct wait_command *)command)->event);
    free(command);
}

CUresult sgp_shared_event_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct wait_command *wait;

    if (sgp_shared_event_is_complete(event->shared)) {
        return CUDA_SUCCESS;
    }
    wait = calloc(1, sizeof(*wait));
    if (!wait) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *wait = (struct wait_command){.command = {.run = wait_run, .finish = wait_finish, .uses_no_memory = true},
                                  .event = event,
                                  .context = stream->object.context,
                                  .number = atomic_load(&event->shared->words->nr_recorded)};
    sgp_object_keep(event);
    return sgp_queue_submit(stream, &wait->command, NULL);
}
