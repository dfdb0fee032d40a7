#include "channels.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The driver's interface: requests of the magic 'F', whose structures are these. */
#define MAGIC           'F'
#define REQUEST_FREE    0x29u
#define REQUEST_CONTROL 0x2au
#define REQUEST_ALLOC   0x2bu
#define REQUEST_WRAPPED 211u /* number, size and place of a request that is too large to be one itself */

#define CLASS_SUBDEVICE     0x2080u
#define CLASS_CHANNEL_GROUP 0xa06cu
#define CLASS_OLDEST        0xa06fu

#define CONTROL_DISABLE      0x2080110bu
#define DISABLE_MAX_CHANNELS 64u

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

struct parameters_disable {
    uint8_t is_disabled;
    uint32_t nr_channels;
    uint8_t only_scheduling, rewinds;
    uint64_t event;
    uint32_t clients[DISABLE_MAX_CHANNELS], channels[DISABLE_MAX_CHANNELS];
};

_Static_assert(sizeof(struct request_control) == 32 && offsetof(struct request_control, status) == 28,
               "as the driver has it");
_Static_assert(sizeof(struct parameters_disable) == 24 + 2 * 4 * DISABLE_MAX_CHANNELS, "as the driver has it");

#define MAX_OBJECTS 4096u

struct object {
    int file;
    uint32_t client, parent, handle, class;
    bool is_old; /* of before the renewal that goes on */
};

static struct {
    pthread_mutex_t lock;
    struct object objects[MAX_OBJECTS];
    unsigned nr;
    bool is_incomplete; /* there were more */
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
    const struct object object = {.file = file,
                                  .client = request->client,
                                  .parent = request->parent,
                                  .handle = request->object,
                                  .class = request->class};
    pthread_mutex_lock(&seen.lock);
    if (is_of_use(&object)) {
        if (seen.nr < MAX_OBJECTS) {
            seen.objects[seen.nr++] = object;
        } else {
            seen.is_incomplete = true;
        }
    }
    pthread_mutex_unlock(&seen.lock);
}

static void forget(const struct request_free *request)
{
    pthread_mutex_lock(&seen.lock);
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (object->client == request->client && object->handle == request->object) {
            seen.objects[i--] = seen.objects[--seen.nr];
        }
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
        if (status == 0) {
            remember(file, argument);
        }
    } else if (number == REQUEST_FREE && bytes == sizeof(struct request_free)) {
        const struct request_free *request = argument;
        if (request->status == 0) {
            forget(request);
        }
    }
}

int ioctl(int file, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = (int)syscall(SYS_ioctl, file, request, argument);
    if (result == 0 && _IOC_TYPE(request) == MAGIC && argument) {
        const int saved = errno;
        note(file, _IOC_NR(request), _IOC_SIZE(request), argument);
        errno = saved;
    }
    return result;
}

static void begin_renewal(void)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        seen.objects[i].is_old = true;
    }
}

static void end_renewal(void)
{
    bool is_renewed = false;
    for (unsigned i = 0; i < seen.nr; i++) {
        is_renewed |= computes(&seen.objects[i]) && !seen.objects[i].is_old;
    }
    for (unsigned i = 0; i < seen.nr && is_renewed; i++) {
        if (seen.objects[i].is_old) {
            seen.objects[i--] = seen.objects[--seen.nr];
        }
    }
}

void fgv_channels_renew(bool is_over)
{
    pthread_mutex_lock(&seen.lock);
    if (is_over) {
        end_renewal();
    } else {
        begin_renewal();
    }
    pthread_mutex_unlock(&seen.lock);
}

static const struct object *find(uint32_t client, uint32_t handle)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        if (seen.objects[i].client == client && seen.objects[i].handle == handle) {
            return &seen.objects[i];
        }
    }
    return NULL;
}

/* The group that an object which computes belongs to, through its channel. */
static const struct object *group_of(const struct object *engine)
{
    const struct object *channel = computes(engine) ? find(engine->client, engine->parent) : NULL;
    const struct object *group = channel && is_channel(channel) ? find(channel->client, channel->parent) : NULL;
    return group && group->class == CLASS_CHANNEL_GROUP ? group : NULL;
}

/* The group of the object at `i`, where it is the first of its group that computes; else NULL. */
static const struct object *new_group(unsigned i)
{
    const struct object *group = group_of(&seen.objects[i]);
    for (unsigned j = 0; j < i && group; j++) {
        if (group_of(&seen.objects[j]) == group) {
            return NULL;
        }
    }
    return group;
}

static struct fgv_channels_answer control(const struct object *object, uint32_t command, void *parameters, size_t bytes)
{
    struct request_control request = {.client = object->client,
                                      .object = object->handle,
                                      .command = command,
                                      .parameters = (uint64_t)(uintptr_t)parameters,
                                      .bytes = (uint32_t)bytes};
    struct fgv_channels_answer answer = {0};
    if (syscall(SYS_ioctl, object->file, _IOWR(MAGIC, REQUEST_CONTROL, struct request_control), &request) < 0) {
        answer.error = errno;
    }
    answer.status = request.status;
    return answer;
}

/* The device that a group is on, as the driver's controls want it named. */
static const struct object *subdevice_of(const struct object *group)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (object->class == CLASS_SUBDEVICE && object->client == group->client && object->parent == group->parent) {
            return object;
        }
    }
    return NULL;
}

/* 0, or an errno: a group of more channels than one request holds would be taken off in part. */
static int list_channels(const struct object *group, struct parameters_disable *parameters)
{
    for (unsigned i = 0; i < seen.nr; i++) {
        const struct object *object = &seen.objects[i];
        if (!is_channel(object) || object->client != group->client || object->parent != group->handle) {
            continue;
        }
        if (parameters->nr_channels == DISABLE_MAX_CHANNELS) {
            return E2BIG;
        }
        parameters->clients[parameters->nr_channels] = object->client;
        parameters->channels[parameters->nr_channels++] = object->handle;
    }
    return 0;
}

static struct fgv_channels_answer set_group_off(const struct object *group, bool is_off)
{
    struct parameters_disable parameters = {.is_disabled = is_off};
    const struct object *subdevice = subdevice_of(group);
    struct fgv_channels_answer answer = {.error = subdevice ? list_channels(group, &parameters) : ENODEV};
    return answer.error == 0 ? control(subdevice, CONTROL_DISABLE, &parameters, sizeof(parameters)) : answer;
}

/* Of the first `nr` objects. Groups are let go however that of others went; the first failure is told. */
static struct fgv_channels_answer set_groups_off(unsigned nr, bool is_off)
{
    struct fgv_channels_answer all = {0};
    bool is_found = false;
    for (unsigned i = 0; i < nr; i++) {
        const struct object *group = new_group(i);
        if (!group) {
            continue;
        }
        const struct fgv_channels_answer answer = set_group_off(group, is_off);
        is_found = true;
        if (fgv_channels_did(&all)) {
            all = answer;
        }
        if (is_off && !fgv_channels_did(&answer)) {
            set_groups_off(i + 1, false);
            break;
        }
    }
    if (!is_found) {
        all.error = ENODEV;
    }
    return all;
}

struct fgv_channels_answer fgv_channels_set_off(bool is_off)
{
    pthread_mutex_lock(&seen.lock);
    struct fgv_channels_answer answer = {.error = ENOBUFS};
    if (!is_off || !seen.is_incomplete) {
        answer = set_groups_off(seen.nr, is_off);
    }
    pthread_mutex_unlock(&seen.lock);
    return answer;
}
