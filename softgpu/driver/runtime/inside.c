/*
 * The process behind the wall: one launch after another, each of which may take it over. There is nothing here that is
 * worth taking: wall_records.h.
 */
#include "runtime/inside.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/reach.h"
#include "runtime/confine.h"
#include "runtime/wall_records.h"

static int outside = -1;
static pthread_mutex_t question_lock = PTHREAD_MUTEX_INITIALIZER; /* a question and its answer are one */

static ssize_t receive(void *to, size_t bytes)
{
    ssize_t got;

    do {
        got = recv(outside, to, bytes, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* With nobody to tell there is nothing left to do. */
static void say(const struct sgp_wall_record *record)
{
    size_t bytes = offsetof(struct sgp_wall_record, text) + record->text_bytes;
    ssize_t sent;

    do {
        sent = send(outside, record, bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)bytes) {
        _exit(1);
    }
}

static void ask(const struct sgp_wall_record *record, struct sgp_wall_answer *answer)
{
    pthread_mutex_lock(&question_lock);
    say(record);
    if (receive(answer, sizeof(*answer)) != (ssize_t)sizeof(*answer)) {
        _exit(1);
    }
    pthread_mutex_unlock(&question_lock);
}

static void print(struct sgp_grid *grid, const char *text, size_t bytes)
{
    struct sgp_wall_record record = {.question = SGP_WALL_PRINT};

    (void)grid;
    record.text_bytes = (uint32_t)(bytes < sizeof(record.text) ? bytes : sizeof(record.text));
    memcpy(record.text, text, record.text_bytes);
    say(&record);
}

static void *allocate(struct sgp_grid *grid, uint64_t bytes)
{
    const struct sgp_wall_record record = {.question = SGP_WALL_ALLOCATE, .value = bytes};
    struct sgp_wall_answer answer;

    (void)grid;
    ask(&record, &answer);
    if (answer.address && mprotect((void *)answer.address, answer.bytes, PROT_READ | PROT_WRITE)) {
        _exit(1);
    }
    return (void *)answer.address;
}

static bool free_of_kernel(struct sgp_grid *grid, void *pointer)
{
    const struct sgp_wall_record record = {.question = SGP_WALL_FREE, .value = (uintptr_t)pointer};
    struct sgp_wall_answer answer;

    (void)grid;
    ask(&record, &answer);
    return answer.address && !mprotect((void *)answer.address, answer.bytes, PROT_NONE);
}

static uint32_t place(struct sgp_grid *grid, uint32_t left, uint32_t wish)
{
    const struct sgp_wall_record record = {.question = SGP_WALL_PLACE, .value = (uint64_t)wish << 32 | left};
    struct sgp_wall_answer answer;

    (void)grid;
    ask(&record, &answer);
    return (uint32_t)answer.address;
}

static const struct sgp_services services = {
    .print = print, .allocate = allocate, .free = free_of_kernel, .place = place};

void sgp_inside_main(int socket, int device, int parent)
{
    static struct sgp_wall_launch launch;

    outside = socket;
    if (!sgp_confine(socket, parent)) {
        _exit(1);
    }
    sgp_reach_go_inside();
    while (receive(&launch, sizeof(launch)) > 0) {
        struct sgp_wall_record record = {.question = SGP_WALL_ENDED};

        for (uint32_t i = 0; i < launch.nr_changes; i++) {
            if (!sgp_view_make(&launch.changes[i])) {
                _exit(1);
            }
        }
        launch.grid.parameters = launch.parameters;
        record.value = sgp_launch_here(&launch.grid, device, &services);
        say(&record);
    }
    _exit(0);
}
