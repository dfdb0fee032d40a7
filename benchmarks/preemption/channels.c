#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "channels.h"

/* The driver's interface: requests of the magic 'F', whose structures are these. */
#define MAGIC           'F'
#define REQUEST_FREE    0x29u
#define REQUEST_CONTROL 0x2au
#define REQUEST_ALLOC   0x2bu
#define REQUEST_WRAPPED 211u /* number, size and place of a request that is too large to be one itself */

#define CLASS_SUBDEVICE     0x2080u
#define CLASS_CHANNEL_GROUP 0xa06cu
#define CLASS_OLDEST        0xa06fu

#define CONTROL_SET_TIMESLICE 0xa06c0103u
#define CONTROL_GET_TIMESLICE 0xa06c0104u
#define CONTROL_PREEMPT       0xa06c0105u
#define CONTROL_DISABLE       0x2080110bu
#define DISABLE_MAX_CHANNELS  64u

struct request_free {
    uint32_t client, parent, object, status;
};

/* Without its tail, which the two sizes of it do not share. */
struct request_alloc {
    uint32_t client, parent, object, class;
    uint64_t parameters;
};

struct request_control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t bytes, status;
};

struct request_wrapped {
    uint32_t number, bytes;
    uint64_t place;
};

struct parameters_preempt {
    uint8_t waits, has_limit;
    uint32_t limit_us;
};

struct parameters_disable {
    uint8_t is_disabled;
    uint32_t nr_channels;
    uint8_t only_scheduling, rewinds;
    uint64_t event;
    uint32_t clients[DISABLE_MAX_CHANNELS], channels[DISABLE_MAX_CHANNELS];
};

_Static_assert(sizeof(struct request_control) == 32 && offsetof(struct request_control, status) == 28,
               "as the driver has it");
_Static_assert(sizeof(struct parameters_preempt) == 8, "as the driver has it");
_Static_assert(sizeof(struct parameters_disable) == 24 + 2 * 4 * DISABLE_MAX_CHANNELS, "as the driver has it");

#define MAX_OBJECTS 4096u

struct object {
    int file;
    uint32_t client, parent, handle, class;
};

static struct {
    pthread_mutex_t lock;
    struct object objects[MAX_OBJECTS];
    unsigned nr;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_channel(const struct object *object)
{
    return (object->class & 0xff) == 0x6f && object->class >= CLASS_OLDEST;
}

/* Of all that is in a channel, only what computes has a class that ends so. */
static bool computes(const struct object *object)
{
    return (object->class & 0xff) == 0xc0 && object->class >= CLASS_OLDEST;
}

static bool is_of_use(const struct object *object)
{
    return object->class == CLASS_SUBDEVICE || object->class == CLASS_CHANNEL_GROUP || is_channel(object) ||
           computes(object);
}

static void remember(int file, const struct request_alloc *request)
{
    const struct object object = {file, request->client, request->parent, request->object, request->class};
    pthread_mutex_lock(&seen.lock);
    if (is_of_use(&object) && seen.nr < MAX_OBJECTS)
        seen.objects[seen.nr++] = object;
    pthread_mutex_unlock(&seen.lock);
}

static void forget(const struct request_free *request)
{
    pthread_mutex_lock(&seen.lock);
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (object->client == request->client && object->handle == request->object)
            seen.objects[i--] = seen.objects[--seen.nr];
    }
    pthread_mutex_unlock(&seen.lock);
}

static void note(int file, unsigned number, size_t bytes, const void *argument)
{
    if (number == REQUEST_WRAPPED && bytes == sizeof(struct request_wrapped)) {
        const struct request_wrapped *wrapped = argument;
        note(file, wrapped->number, wrapped->bytes, (const void *)wrapped->place);
    } else if (number == REQUEST_ALLOC && (bytes == 32 || bytes == 48)) {
        uint32_t status;
        memcpy(&status, (const char *)argument + (bytes == 32 ? 28 : 40), sizeof(status));
        if (status == 0)
            remember(file, argument);
    } else if (number == REQUEST_FREE && bytes == sizeof(struct request_free)) {
        const struct request_free *request = argument;
        if (request->status == 0)
            forget(request);
    }
}

int ioctl(int file, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = (int)syscall(SYS_ioctl, file, request, argument);
    if (result == 0 && _IOC_TYPE(request) == MAGIC && argument != NULL) {
        const int saved = errno;
        note(file, _IOC_NR(request), _IOC_SIZE(request), argument);
        errno = saved;
    }
    return result;
}

static const struct object *find(uint32_t client, uint32_t handle)
{
    for (unsigned i = 0; i < seen.nr; i++)
        if (seen.objects[i].client == client && seen.objects[i].handle == handle)
            return &seen.objects[i];
    return NULL;
}

/* The group that an object which computes belongs to, through its channel. */
static const struct object *group_of(const struct object *engine)
{
    const struct object *channel = computes(engine) ? find(engine->client, engine->parent) : NULL;
    const struct object *group = channel && is_channel(channel) ? find(channel->client, channel->parent) : NULL;
    return group && group->class == CLASS_CHANNEL_GROUP ? group : NULL;
}

/* The only group that computes. 0, or an errno. */
static int computing_group(const struct object **found)
{
    *found = NULL;
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *group = group_of(&seen.objects[i]);
        if (group && *found && group != *found)
            return EEXIST;
        *found = group ? group : *found;
    }
    return *found ? 0 : ENODEV;
}

struct channels_found channels_find(void)
{
    struct channels_found found = {0};
    pthread_mutex_lock(&seen.lock);
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        found.nr_groups += object->class == CLASS_CHANNEL_GROUP;
        found.nr_channels += is_channel(object);
        bool is_first = group_of(object) != NULL;
        for (unsigned j = 0; j < i && is_first; j++)
            is_first = group_of(&seen.objects[j]) != group_of(object);
        found.nr_computing += is_first;
    }
    pthread_mutex_unlock(&seen.lock);
    return found;
}

static struct channels_answer control(const struct object *object, uint32_t command, void *parameters, size_t bytes)
{
    struct request_control request = {.client = object->client,
                                      .object = object->handle,
                                      .command = command,
                                      .parameters = (uint64_t)(uintptr_t)parameters,
                                      .bytes = (uint32_t)bytes};
    struct channels_answer answer = {0};
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (syscall(SYS_ioctl, object->file, _IOWR(MAGIC, REQUEST_CONTROL, struct request_control), &request) < 0)
        answer.error = errno;
    clock_gettime(CLOCK_MONOTONIC, &end);
    answer.status = request.status;
    answer.us = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
    return answer;
}

static struct channels_answer control_group(uint32_t command, void *parameters, size_t bytes)
{
    const struct object *group;
    pthread_mutex_lock(&seen.lock);
    struct channels_answer answer = {.error = computing_group(&group)};
    if (group && answer.error == 0)
        answer = control(group, command, parameters, bytes);
    pthread_mutex_unlock(&seen.lock);
    return answer;
}

struct channels_answer channels_timeslice(uint64_t *us)
{
    *us = 0;
    return control_group(CONTROL_GET_TIMESLICE, us, sizeof(*us));
}

struct channels_answer channels_set_timeslice(uint64_t us)
{
    return control_group(CONTROL_SET_TIMESLICE, &us, sizeof(us));
}

struct channels_answer channels_preempt(uint32_t limit_us)
{
    struct parameters_preempt parameters = {.waits = 1, .has_limit = 1, .limit_us = limit_us};
    return control_group(CONTROL_PREEMPT, &parameters, sizeof(parameters));
}

/* The device that a group is on, as the driver's controls want it named. */
static const struct object *subdevice_of(const struct object *group)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (object->class == CLASS_SUBDEVICE && object->client == group->client && object->parent == group->parent)
            return object;
    }
    return NULL;
}

/* 0, or an errno: a group of more channels than one request holds would be held back in part. */
static int list_channels(const struct object *group, struct parameters_disable *parameters)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (!is_channel(object) || object->client != group->client || object->parent != group->handle)
            continue;
        if (parameters->nr_channels == DISABLE_MAX_CHANNELS)
            return E2BIG;
        parameters->clients[parameters->nr_channels] = object->client;
        parameters->channels[parameters->nr_channels++] = object->handle;
    }
    return 0;
}

struct channels_answer channels_hold(bool is_held)
{
    struct parameters_disable parameters = {.is_disabled = is_held};
    const struct object *group, *subdevice = NULL;
    pthread_mutex_lock(&seen.lock);
    struct channels_answer answer = {.error = computing_group(&group)};
    if (answer.error == 0)
        subdevice = subdevice_of(group);
    if (answer.error == 0)
        answer.error = subdevice ? list_channels(group, &parameters) : ENODEV;
    if (answer.error == 0)
        answer = control(subdevice, CONTROL_DISABLE, &parameters, sizeof(parameters));
    pthread_mutex_unlock(&seen.lock);
    return answer;
}
