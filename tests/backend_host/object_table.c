/*
 * A whole worker without its loop, for test_objects.py: requests are served one by one, all objects are saved and made
 * again, and the device library is asked about each.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "calls/bound.h"
#include "calls/context.h"
#include "calls/graph_memory.h"
#include "calls/image.h"
#include "calls/kept_image.h"
#include "calls/kinds.h"
#include "calls/memory.h"
#include "calls/objects.h"
#include "calls/pool.h"
#include "calls/span.h"
#include "calls/state.h"
#include "calls/virtual_memory.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "loop/face.h"
#include "loop/stand.h"
#include "loop/state.h"
#include "page/account.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/motion.h"
#include "replay/replay.h"

#define ARENA_BYTES (64u << 10)

static struct fgw_worker *worker;
static struct fgw_control *control;
static struct fgw_grantee grantee; /* that outlives the worker */
static struct fgw_saver saver;
static struct fgw_trouble trouble;

/* ---- a worker, and what it serves ---- */

bool begin(const char *library, uint64_t kept_bytes)
{
    static struct fgv_client client;
    char error[512];
    worker = fgw_worker_open(library, 0, error, sizeof(error));
    if (!worker) {
        fprintf(stderr, "%s\n", error);
        return false;
    }
    if (!control) {
        int objects[FGW_CONTROL_OBJECTS];
        for (uint32_t i = 0; i < FGW_CONTROL_OBJECTS; i++) {
            objects[i] = memfd_create("control", 0);
        }
        control = fgw_control_format(objects, 6000000, false);
        fgw_control_vgpu_take(control, 1ull << 30);
        fgw_control_worker_assign(control, (uint32_t)fgw_control_worker_take(control), 1, 0, 0);
    }
    if (!fgw_grantee_attach(&worker->grantee, control, 0, 0)) {
        return false;
    }
    grantee = worker->grantee;
    worker->slot = grantee.slot;
    worker->client = &client;
    worker->region.base = aligned_alloc(4096, ARENA_BYTES);
    worker->layout.arena.bytes = ARENA_BYTES;
    fgw_kept_image_limit(worker, kept_bytes);
    return worker->region.base != NULL;
}

uint64_t quota_used(void)
{
    uint64_t quota_bytes;
    return fgw_quota_used(&grantee, &quota_bytes);
}

uint64_t kept_bytes(void)
{
    return worker->calls->kept_bytes;
}

/* An allocation, mapped at an address when the objects are made again. */
static struct {
    uint64_t number, address, bytes;
} mapping;

/* Memory that the process would take with it. */
static void free_memory(void)
{
    struct fgw_handle handle;
    struct fgw_saved none = {0};
    const struct fgv_request_cuMemUnmap unmap = {.address = mapping.address, .bytes = mapping.bytes};
    const struct fgv_request_cuMemAddressFree free_address = {.address = mapping.address, .bytes = mapping.bytes};
    fgw_saved_serve(worker, &none, &(struct fgw_saved_call){.call = FGV_CALL_cuMemUnmap, .fixed = &unmap});
    fgw_saved_serve(worker, &none, &(struct fgw_saved_call){.call = FGV_CALL_cuMemAddressFree, .fixed = &free_address});
    for (uint32_t at = 0; fgw_handle_next(worker, FGV_HANDLE_ALLOCATION, &at, &handle);) {
        const struct fgv_request_cuMemRelease release = {.handle = handle.number};
        fgw_saved_serve(worker, &none, &(struct fgw_saved_call){.call = FGV_CALL_cuMemRelease, .fixed = &release});
    }
}

/* As the worker takes down what a client leaves. What it still kept of images afterwards. */
uint64_t end(void)
{
    fgw_replay_end(worker);
    free_memory();
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            fgw_context_destroy(worker, worker->contexts[i]);
        }
    }
    fgw_memory_drop_context(worker, NULL);
    fgw_handles_end(worker);
    fgw_pools_drop(worker);
    fgw_graph_memory_drop(worker);
    fgw_virtual_memory_drop(worker);
    fgw_blobs_free(worker);
    fgw_context_cool(worker);
    free(worker->region.base);
    const uint64_t left_bytes = worker->calls->kept_bytes;
    free(worker->loop->backlog.bytes);
    free(worker);
    free(saver.bytes);
    saver = (struct fgw_saver){0};
    return left_bytes;
}

int serve(uint64_t context, uint16_t call, const void *fixed, const void *payload, uint32_t payload_bytes, void *reply)
{
    const struct fgw_service *service = fgw_service_find(call);
    const struct fgv_wire_header header = {.call = call, .context = (uint32_t)context};
    const struct fgw_request request = {&header, fixed, payload, payload_bytes};
    if (context != 0 && fgw_context_enter(worker, (uint32_t)context) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return service->serve(worker, &request, reply);
}

/* ---- what binds the program ---- */

void want_span(void)
{
    fgw_worker_set_span(worker, true);
}

void set_binds(fgw_binds_fn binds)
{
    fgw_worker_set_binds(worker, binds);
}

uint32_t bound(void)
{
    return fgw_bound_of(worker);
}

/* What the daemon is shown. */
uint32_t shown(void)
{
    fgw_stand_tell_bound(worker);
    return worker->slot->bound;
}

/* As if memory was shared, for which it takes a daemon. */
void share(uint32_t nr_exports, uint32_t nr_imports)
{
    worker->calls->sharing.nr_exports = nr_exports;
    worker->calls->sharing.nr_imports = nr_imports;
}

/* ---- saving ---- */

/* The bytes, or NULL: tell_trouble. */
const uint8_t *save(uint64_t *nr_bytes)
{
    saver.nr = 0;
    const bool is_saved = fgw_objects_save(worker, &saver, &trouble);
    *nr_bytes = saver.nr;
    return is_saved ? saver.bytes : NULL;
}

void will_map(uint64_t number, uint64_t address, uint64_t bytes)
{
    mapping.number = number;
    mapping.address = address;
    mapping.bytes = bytes;
}

static const char *map(struct fgw_worker *at)
{
    struct fgw_saved none = {0};
    const struct fgv_request_cuMemAddressReserve reserve = {.bytes = mapping.bytes, .address = mapping.address};
    const struct fgv_request_cuMemMap mem_map = {
        .address = mapping.address, .bytes = mapping.bytes, .handle = mapping.number};
    const struct fgv_request_cuMemSetAccess access = {
        .address = mapping.address, .bytes = mapping.bytes, .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const struct fgw_saved_call calls[] = {{.call = FGV_CALL_cuMemAddressReserve, .fixed = &reserve},
                                           {.call = FGV_CALL_cuMemMap, .fixed = &mem_map},
                                           {.call = FGV_CALL_cuMemSetAccess, .fixed = &access}};
    const char *why = NULL;
    for (uint32_t i = 0; i < 3 && !why; i++) {
        why = fgw_saved_serve(at, &none, &calls[i]);
    }
    return why;
}

bool restore(const uint8_t *bytes, uint64_t nr_bytes)
{
    uint8_t *exact = malloc(nr_bytes + 1); /* with nothing behind it that may be read */
    uint8_t *at = exact + 1;               /* at an odd address */
    memcpy(at, bytes, nr_bytes);
    const bool is_restored = fgw_objects_restore(worker, at, nr_bytes, mapping.number != 0 ? map : NULL, &trouble);
    free(exact);
    return is_restored;
}

const char *tell_trouble(uint32_t *kind, uint64_t *number, int *result)
{
    *kind = trouble.kind;
    *number = trouble.number;
    *result = (int)trouble.result;
    return trouble.why;
}

const char *kind_name(uint32_t kind)
{
    return kind < FGW_NR_KINDS ? fgw_kinds[kind].name : NULL;
}

const char *kind_cannot(uint32_t kind)
{
    return fgw_kinds[kind].cannot;
}

uint32_t nr_kinds(void)
{
    return FGW_NR_KINDS;
}

bool kind_is_whole(uint32_t kind)
{
    const struct fgw_kind *row = &fgw_kinds[kind];
    return row->name && row->unknown != CUDA_SUCCESS && (row->save != NULL) == (row->restore != NULL) &&
           (row->save != NULL) != (row->cannot != NULL);
}

/* ---- replay ---- */

static void poll_once(void)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    fgw_replay_poll(worker, true);
    nanosleep(&nap, NULL);
}

/* As far as this enum fgw_motion says, towards this device. 0: it is there, or what it is bound by. */
uint32_t replay(uint32_t motion, uint32_t device)
{
    const enum fgw_stage stage = motion == FGW_MOTION_COPY ? FGW_STAGE_PREPARED : FGW_STAGE_STANDS;
    fgw_control_set_motion_device(control, 0, device);
    fgw_control_set_motion(control, 0, motion);
    do {
        poll_once();
    } while (fgw_replay_stage(worker) != stage && fgw_replay_bound(worker) == 0);
    return fgw_replay_bound(worker);
}

/* For good, or back; nothing is left of it then. The device it is on. */
int replay_end(bool is_for_good)
{
    fgw_control_set_motion(control, 0, FGW_MOTION_NONE);
    if (is_for_good) {
        fgw_replay_settle(worker);
    } else {
        fgw_replay_undo(worker);
    }
    do {
        poll_once();
    } while (fgw_replay_is_active(worker));
    return worker->device;
}

/* ---- what the device library says ---- */

struct text {
    char *at;
    size_t room;
};

static void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int nr = vsnprintf(text->at, text->room, format, arguments);
    va_end(arguments);
    if (nr > 0 && (size_t)nr < text->room) {
        text->at += nr;
        text->room -= (size_t)nr;
    }
}

static void say_context(const struct fgv_driver *driver, struct text *text)
{
    unsigned int flags = 0;
    CUfunc_cache config = 0;
    driver->cuCtxGetFlags(&flags);
    driver->cuCtxGetCacheConfig(&config);
    say(text, "flags %u cache %d limits", flags, (int)config);
    for (int i = 0; i < CU_LIMIT_MAX; i++) {
        size_t value = 0;
        const CUresult result = driver->cuCtxGetLimit(&value, (CUlimit)i);
        say(text, " %d:%zu", (int)result, value);
    }
}

static void say_stream(const struct fgv_driver *driver, struct text *text, CUstream stream)
{
    unsigned int flags = 0;
    int priority = 0;
    driver->cuStreamGetFlags(stream, &flags);
    driver->cuStreamGetPriority(stream, &priority);
    say(text, "flags %u priority %d attributes", flags, priority);
    for (int i = 0; i < 12; i++) {
        CUstreamAttrValue value;
        memset(&value, 0, sizeof(value));
        const CUresult result = driver->cuStreamGetAttribute(stream, (CUstreamAttrID)i, &value);
        say(text, " %d:%d", (int)result, i == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ? (int)value.syncPolicy : 0);
    }
    say(text, " query %d", (int)driver->cuStreamQuery(stream));
}

/* Whether it has times can only be tried. */
static void say_event(const struct fgv_driver *driver, struct text *text, CUevent event)
{
    float ms = 0;
    const CUresult recorded = driver->cuEventRecord(event, NULL);
    driver->cuStreamSynchronize(NULL);
    say(text, "record %d elapsed %d", (int)recorded, (int)driver->cuEventElapsedTime(&ms, event, event));
}

static void say_variable(const struct fgv_driver *driver, struct text *text, CUmodule module)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    unsigned int nr = 0;
    const CUresult result = driver->cuModuleGetGlobal_v2(&address, &bytes, module, "table");
    driver->cuModuleGetFunctionCount(&nr, module);
    say(text, "functions %u variable %d %zu", nr, (int)result, bytes);
}

static void say_function(const struct fgv_driver *driver, struct text *text, CUfunction function)
{
    const char *name = "";
    driver->cuFuncGetName(&name, function);
    say(text, "name %s attributes", name);
    for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
        int value = 0;
        const CUresult result = driver->cuFuncGetAttribute(&value, (CUfunction_attribute)i, function);
        say(text, " %d:%d", (int)result, value);
    }
    size_t offset = 0;
    size_t bytes = 0;
    for (size_t i = 0; driver->cuFuncGetParamInfo(function, i, &offset, &bytes) == CUDA_SUCCESS; i++) {
        say(text, " parameter %zu+%zu", offset, bytes);
    }
}

static void say_library(const struct fgv_driver *driver, struct text *text, CUlibrary library)
{
    unsigned int nr = 0;
    const CUresult result = driver->cuLibraryGetKernelCount(&nr, library);
    say(text, "kernels %d %u", (int)result, nr);
}

static void say_kernel(const struct fgv_driver *driver, struct text *text, CUkernel kernel)
{
    const char *name = "";
    driver->cuKernelGetName(&name, kernel);
    say(text, "name %s attributes", name);
    for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
        int value = 0;
        const CUresult result = driver->cuKernelGetAttribute(&value, (CUfunction_attribute)i, kernel, worker->device);
        say(text, " %d:%d", (int)result, value);
    }
}

static void say_array(const struct fgv_driver *driver, struct text *text, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {0};
    const CUresult result = driver->cuArray3DGetDescriptor_v2(&descriptor, array);
    say(text, "descriptor %d %zux%zux%zu format %d channels %u flags %u", (int)result, descriptor.Width,
        descriptor.Height, descriptor.Depth, (int)descriptor.Format, descriptor.NumChannels, descriptor.Flags);
}

static void say_mipmapped(const struct fgv_driver *driver, struct text *text, CUmipmappedArray mipmap)
{
    CUarray level;
    for (unsigned int i = 0; driver->cuMipmappedArrayGetLevel(&level, mipmap, i) == CUDA_SUCCESS; i++) {
        say_array(driver, text, level);
        say(text, "; ");
    }
}

static void say_pool(struct text *text, const struct fgw_memory_pool *pool)
{
    for (uint32_t i = 1; i <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; i++) {
        uint64_t value = 0;
        const CUresult result = fgw_pool_get(pool, i, &value);
        say(text, " %d:%llu", (int)result, (unsigned long long)value);
    }
}

static void say_resource(const struct fgv_driver *driver, struct text *text, const CUDA_RESOURCE_DESC *resource)
{
    say(text, "resource %d ", (int)resource->resType);
    if (resource->resType == CU_RESOURCE_TYPE_ARRAY) {
        say_array(driver, text, resource->res.array.hArray);
    } else if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        say_mipmapped(driver, text, resource->res.mipmap.hMipmappedArray);
    } else if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
        say(text, "%llx+%zu", (unsigned long long)resource->res.linear.devPtr, resource->res.linear.sizeInBytes);
    }
}

static void say_texture(const struct fgv_driver *driver, struct text *text, CUtexObject object)
{
    CUDA_RESOURCE_DESC resource = {0};
    CUDA_TEXTURE_DESC texture = {0};
    const CUresult results[] = {driver->cuTexObjectGetResourceDesc(&resource, object),
                                driver->cuTexObjectGetTextureDesc(&texture, object)};
    say(text, "object %llu: %d %d ", (unsigned long long)object, (int)results[0], (int)results[1]);
    say_resource(driver, text, &resource);
    say(text, " modes %d %d filter %d flags %u border %f", (int)texture.addressMode[0], (int)texture.addressMode[1],
        (int)texture.filterMode, texture.flags, (double)texture.borderColor[1]);
}

static void say_surface(const struct fgv_driver *driver, struct text *text, CUsurfObject object)
{
    CUDA_RESOURCE_DESC resource = {0};
    const CUresult result = driver->cuSurfObjectGetResourceDesc(&resource, object);
    say(text, "object %llu: %d ", (unsigned long long)object, (int)result);
    say_resource(driver, text, &resource);
}

static void say_what(const struct fgv_driver *driver, struct text *text, const struct fgw_handle *handle)
{
    switch ((uint32_t)handle->kind) {
    case FGV_HANDLE_CONTEXT:
        return say_context(driver, text);
    case FGV_HANDLE_STREAM:
        return say_stream(driver, text, handle->native);
    case FGV_HANDLE_EVENT:
        return say_event(driver, text, handle->native);
    case FGV_HANDLE_MODULE:
        return say_variable(driver, text, handle->native);
    case FGV_HANDLE_FUNCTION:
        return say_function(driver, text, handle->native);
    case FGV_HANDLE_LIBRARY:
        return say_library(driver, text, handle->native);
    case FGV_HANDLE_KERNEL:
        return say_kernel(driver, text, handle->native);
    case FGV_HANDLE_ARRAY:
        return say_array(driver, text, handle->native);
    case FGV_HANDLE_MIPMAPPED_ARRAY:
        return say_mipmapped(driver, text, handle->native);
    case FGV_HANDLE_MEMORY_POOL:
        return say_pool(text, handle->native);
    case FGW_OWN_TEXTURE:
        return say_texture(driver, text, handle->number - 16);
    case FGW_OWN_SURFACE:
        return say_surface(driver, text, handle->number - 16);
    default:
        return;
    }
}

/* What the device library says of each handle, a line for one, with where it stands. */
void say_all(char *to, uint64_t room)
{
    struct text text = {to, room};
    struct fgw_handle handle;
    for (uint32_t at = 0; fgw_handle_down(worker, &at, &handle);) {
        const struct fgw_handle above = fgw_handle_above(worker, &handle);
        struct fgw_context *home = handle.kind == FGV_HANDLE_CONTEXT ? fgw_context_find(worker, handle.number)
                                   : handle.home != 0                ? worker->contexts[handle.home - 1]
                                                                     : worker->current;
        fgw_context_make_current(worker, home);
        say(&text, "%s %llx of %s %llx in %llx: ", fgw_kinds[handle.kind].name, (unsigned long long)handle.number,
            above.number != 0 ? fgw_kinds[above.kind].name : "client", (unsigned long long)above.number,
            handle.home != 0 && home ? (unsigned long long)home->handle : 0);
        say_what(&worker->driver, &text, &handle);
        say(&text, "\n");
    }
}
