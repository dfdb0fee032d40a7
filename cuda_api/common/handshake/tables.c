/*
 * The tables, and what their slots do. A table is an array of words: its size in bytes, then functions;
 * CONTEXT_LOCAL_STORAGE alone has no size and ends with NULL. Sizes are those of NVIDIA's driver 580, slot numbers
 * count the size word as 0.
 *
 * A slot that no runtime was ever seen to need is a stub that counts, logs and answers NOT_SUPPORTED: a caller that
 * does not test for NULL survives it, and FAIRGV_LOG=handshake tells us that somebody came. They come from the list of
 * numbers in stubs.h.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "stubs.h"

typedef void (*fgv_slot_function)(void);

union fgv_slot {
    size_t bytes;
    fgv_slot_function function;
};

#define FGV_SLOT(name) {.function = (fgv_slot_function)(name)}

/* The runtime reads tools' enable flags in these buffers, at offsets not all known: zeroes say no tool is attached. */
#define FGV_TOOLS_BUFFER_BYTES 4096
#define FGV_TOOLS_FLAGS_BYTES  1024
#define FGV_TOOLS_EVENTS_BYTES 14

static atomic_uint_fast64_t nr_tables_served;
static atomic_uint_fast64_t nr_tables_refused;
static atomic_uint_fast64_t nr_unknown_slots;
static atomic_uint_fast64_t nr_integrity_checks;

struct fgv_handshake_statistics fgv_handshake_statistics(void)
{
    return (struct fgv_handshake_statistics){
        .nr_tables_served = atomic_load(&nr_tables_served),
        .nr_tables_refused = atomic_load(&nr_tables_refused),
        .nr_unknown_slots = atomic_load(&nr_unknown_slots),
        .nr_integrity_checks = atomic_load(&nr_integrity_checks),
    };
}

/* FAIRGV_LOG is a list of words separated by commas; ours is "handshake". Asked for on rare paths only. */
static bool is_logging(void)
{
    const char *word = getenv("FAIRGV_LOG");
    while (word && *word != '\0') {
        size_t length = strcspn(word, ",");
        if (length == strlen("handshake") && strncmp(word, "handshake", length) == 0) {
            return true;
        }
        word += length + (word[length] == ',');
    }
    return false;
}

/* One write for one line: lines of several threads do not mix. */
static void log_line(const char *what, const unsigned char uuid[16], const char *detail)
{
    char digits[2 * 16 + 1];
    for (size_t i = 0; i < 16; i++) {
        snprintf(digits + 2 * i, 3, "%02x", uuid[i]);
    }
    char line[128];
    int length = snprintf(line, sizeof(line), "fairgv: handshake: %s %.8s-%.4s-%.4s-%.4s-%.12s%s\n", what, digits,
                          digits + 8, digits + 12, digits + 16, digits + 20, detail);
    if (length > 0 && (size_t)length < sizeof(line) && write(STDERR_FILENO, line, (size_t)length) < 0) {
        return; /* stderr is closed: there is nobody to tell */
    }
}

/* ---- the UUIDs ---- */

#define FGV_UUID_BYTES 16

static const unsigned char uuid_cudart_interface[FGV_UUID_BYTES] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                                    0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
static const unsigned char uuid_tools_hooks[FGV_UUID_BYTES] = {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74,
                                                               0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66};
static const unsigned char uuid_tools_tls[FGV_UUID_BYTES] = {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47,
                                                             0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc};
static const unsigned char uuid_storage[FGV_UUID_BYTES] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                                           0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};
static const unsigned char uuid_integrity[FGV_UUID_BYTES] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                                             0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};
static const unsigned char uuid_context_checks[FGV_UUID_BYTES] = {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43,
                                                                  0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e};
/* No name is known; it hands out ids of contexts and streams. */
static const unsigned char uuid_identities[FGV_UUID_BYTES] = {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48,
                                                              0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2};

/* What the program is given for a table: itself, or what the embedder shows in its place. */
static const union fgv_slot *shown(const union fgv_slot *table, const unsigned char uuid[FGV_UUID_BYTES])
{
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    return !ops || !ops->table_shown ? table : ops->table_shown(table, uuid);
}

/* No names are known; cuBLASLt asks the one, whose first slots tell of multiprocessors, and cuFFT the other. */
static const unsigned char uuid_processors[FGV_UUID_BYTES] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                                              0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
static const unsigned char uuid_modules[FGV_UUID_BYTES] = {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d,
                                                           0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e};

static CUresult unknown_slot(const unsigned char uuid[FGV_UUID_BYTES], int slot)
{
    atomic_fetch_add_explicit(&nr_unknown_slots, 1, memory_order_relaxed);
    if (is_logging()) {
        char detail[16];
        snprintf(detail, sizeof(detail), "[%d]", slot);
        log_line("unknown slot called", uuid, detail);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Stubs are called with arguments we do not know, which the x86-64 calling convention lets a function ignore. */
#define FGV_STUB(table, slot)                                                                                          \
    static CUresult table##_unknown_##slot(void)                                                                       \
    {                                                                                                                  \
        return unknown_slot(uuid_##table, slot);                                                                       \
    }
#define FGV_STUB_SLOT(table, slot) [slot] = FGV_SLOT(table##_unknown_##slot),

FGV_CUDART_INTERFACE_STUBS(FGV_STUB)
FGV_INTEGRITY_STUBS(FGV_STUB)
FGV_CONTEXT_CHECKS_STUBS(FGV_STUB)
FGV_IDENTITIES_STUBS(FGV_STUB)

/* ---- CUDART_INTERFACE ---- */

static CUresult cudart_module_load(CUmodule *module, const void *image)
{
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    if (!ops) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!module || !image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return ops->module_load(module, image);
}

static CUresult cudart_primary_context(CUcontext *context, CUdevice device)
{
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    if (!ops) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!context) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return ops->primary_context(context, device);
}

/* The last three were zero whenever anybody looked; what they would mean is not known. */
static CUresult cudart_module_load_with(CUmodule *module, const void *wrapper, void *a, void *b, uint32_t nr)
{
    if (a || b || nr != 0) {
        return unknown_slot(uuid_cudart_interface, 6);
    }
    return cudart_module_load(module, wrapper);
}

static CUresult cudart_module_load_header(const void *header, CUmodule *module, void *a, void *b, uint32_t nr)
{
    if (a || b || nr != 0) {
        return unknown_slot(uuid_cudart_interface, 8);
    }
    return cudart_module_load(module, header);
}

static void cudart_module_unloaded(size_t unused)
{
    (void)unused;
}

/* "Load the compilers": ours are where the modules are loaded. cudart >= 13.2 gives up everything when this fails. */
static CUresult cudart_load_compilers(void)
{
    return CUDA_SUCCESS;
}

static const union fgv_slot table_cudart_interface[13] = {
    {.bytes = sizeof(table_cudart_interface)},
    FGV_SLOT(cudart_module_load),
    FGV_SLOT(cudart_primary_context),
    FGV_CUDART_INTERFACE_STUBS(FGV_STUB_SLOT)[6] = FGV_SLOT(cudart_module_load_with),
    [7] = FGV_SLOT(cudart_module_unloaded),
    [8] = FGV_SLOT(cudart_module_load_header),
    [10] = {.function = NULL}, /* NULL in NVIDIA's driver too */
    [12] = FGV_SLOT(cudart_load_compilers),
};

/* ---- TOOLS_RUNTIME_CALLBACK_HOOKS: where a profiler would hang itself in; none is ---- */

static CUresult tools_no_operation(void)
{
    return CUDA_SUCCESS;
}

static void tools_flags(void **buffer, size_t *bytes)
{
    static _Alignas(64) unsigned char flags[FGV_TOOLS_BUFFER_BYTES];
    *buffer = flags;
    *bytes = FGV_TOOLS_FLAGS_BYTES;
}

static void tools_events(void **buffer, size_t *bytes)
{
    static _Alignas(64) unsigned char events[FGV_TOOLS_BUFFER_BYTES];
    *buffer = events;
    *bytes = FGV_TOOLS_EVENTS_BYTES;
}

static CUresult tools_span(void *context, uint64_t *out)
{
    if (!context && out) {
        *out = 0;
    }
    return CUDA_SUCCESS;
}

static const union fgv_slot table_tools_hooks[7] = {
    {.bytes = sizeof(table_tools_hooks)},
    FGV_SLOT(tools_no_operation),
    FGV_SLOT(tools_flags),
    FGV_SLOT(tools_no_operation),
    FGV_SLOT(tools_span),
    FGV_SLOT(tools_no_operation),
    FGV_SLOT(tools_events),
};

/* ---- TOOLS_TLS ---- */

static CUresult tools_current_context(CUcontext *context)
{
    return !context ? CUDA_ERROR_INVALID_VALUE : fgv_handshake_current(context);
}

static const union fgv_slot table_tools_tls[3] = {
    {.bytes = sizeof(table_tools_tls)},
    FGV_SLOT(tools_no_operation),
    FGV_SLOT(tools_current_context),
};

/* ---- CONTEXT_LOCAL_STORAGE ---- */

static const union fgv_slot table_storage[4] = {
    FGV_SLOT(fgv_storage_put),
    FGV_SLOT(fgv_storage_delete),
    FGV_SLOT(fgv_storage_get),
    {.function = NULL},
};

/* ---- INTEGRITY_CHECK ---- */

static CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t result[2]);

static const union fgv_slot table_integrity[3] = {
    {.bytes = sizeof(table_integrity)}, FGV_SLOT(integrity_check), FGV_INTEGRITY_STUBS(FGV_STUB_SLOT)};

static CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t result[2])
{
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    if (!ops) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!result) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    atomic_fetch_add_explicit(&nr_integrity_checks, 1, memory_order_relaxed);
    const union fgv_slot *shown_integrity = shown(table_integrity, uuid_integrity);
    struct fgv_integrity_subject subject = {
        .driver_version = (uint32_t)ops->driver_version(),
        .check_version = version,
        .process_id = (uint32_t)getpid(), /* asked anew: it changes with fork */
        .thread_id = (uint32_t)(uintptr_t)pthread_self(),
        .cudart_table = (uintptr_t)shown(table_cudart_interface, uuid_cudart_interface),
        .integrity_table = (uintptr_t)shown_integrity,
        .check_function = (uintptr_t)shown_integrity[1].function,
        .unix_seconds = unix_seconds,
    };
    return fgv_integrity_hash(ops, &subject, result);
}

/* ---- CONTEXT_CHECKS ---- */

/* No context of ours wraps another. The runtime leaves *inner as it is when told so. */
static CUresult context_is_wrapped(CUcontext context, uint32_t *is_wrapped, const void **inner)
{
    (void)context;
    (void)inner;
    if (!is_wrapped) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *is_wrapped = 0;
    return CUDA_SUCCESS;
}

static uint32_t context_check_flags(void)
{
    return 0;
}

static const union fgv_slot table_context_checks[15] = {
    {.bytes = sizeof(table_context_checks)},
    FGV_CONTEXT_CHECKS_STUBS(FGV_STUB_SLOT)[2] = FGV_SLOT(context_is_wrapped),
    [3] = FGV_SLOT(context_check_flags),
};

/* ---- 21318c60: ids of contexts and streams ---- */

static CUresult identity_prepare(const struct fgv_handshake_ops **ops, CUcontext *context)
{
    *ops = fgv_handshake_ops_get();
    if (!*ops) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return !*context ? fgv_handshake_current(context) : CUDA_SUCCESS;
}

static CUresult identity_context(CUcontext context, uint64_t *id)
{
    const struct fgv_handshake_ops *ops;
    if (!id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = identity_prepare(&ops, &context);
    return result == CUDA_SUCCESS ? ops->context_id(context, id) : result;
}

static CUresult identity_stream(CUcontext context, void *object, uint64_t *id)
{
    const struct fgv_handshake_ops *ops;
    if (!object || !id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = identity_prepare(&ops, &context);
    return result == CUDA_SUCCESS ? ops->stream_object_id(context, object, id) : result;
}

static CUresult identity_stream_object(CUcontext context, CUstream stream, void **object, int is_per_thread)
{
    const struct fgv_handshake_ops *ops;
    if (!object) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = identity_prepare(&ops, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!stream) {
        stream = is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    }
    return ops->stream_object(context, stream, object);
}

static const union fgv_slot table_identities[93] = {
    {.bytes = sizeof(table_identities)},
    FGV_IDENTITIES_STUBS(FGV_STUB_SLOT)[4] = FGV_SLOT(identity_context),
    [39] = FGV_SLOT(identity_stream),
    [51] = FGV_SLOT(identity_stream_object),
};

/* ---- 1734dc26 ---- */

/* cuBLASLt does not look whether it got the table, but takes a refusal from its slots. */
FGV_PROCESSORS_STUBS(FGV_STUB)

static const union fgv_slot table_processors[17] = {{.bytes = sizeof(table_processors)},
                                                    FGV_PROCESSORS_STUBS(FGV_STUB_SLOT)};

/* ---- 6e163fbe: what is in a module ---- */

FGV_MODULES_STUBS(FGV_STUB)

/* Tells the callback of each function, with its name; 1 when there was nothing to stop it. */
static int module_functions(CUcontext context, CUmodule module, fgv_handshake_function_callback callback, void *user)
{
    const struct fgv_handshake_ops *ops;
    if (!callback || identity_prepare(&ops, &context) != CUDA_SUCCESS || !ops->module_functions) {
        return 0;
    }
    return ops->module_functions(module, callback, user) == CUDA_SUCCESS;
}

static const union fgv_slot table_modules[99] = {
    {.bytes = sizeof(table_modules)},
    FGV_MODULES_STUBS(FGV_STUB_SLOT)[7] = FGV_SLOT(module_functions),
};

/* ---- cuGetExportTable ---- */

static const struct {
    const unsigned char *uuid;
    const union fgv_slot *table;
} served_tables[] = {
    {uuid_cudart_interface, table_cudart_interface},
    {uuid_tools_hooks, table_tools_hooks},
    {uuid_tools_tls, table_tools_tls},
    {uuid_storage, table_storage},
    {uuid_integrity, table_integrity},
    {uuid_context_checks, table_context_checks},
    {uuid_identities, table_identities},
    {uuid_processors, table_processors},
    {uuid_modules, table_modules},
};

/* What debuggers and profilers ask for, and nobody else was seen to. compute-sanitizer does not look whether it got
 * them, and crashes. */
static bool is_of_tools(const char uuid[FGV_UUID_BYTES])
{
    static const unsigned char known[][FGV_UUID_BYTES] = {
        {0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b},
        {0xfc, 0x58, 0xac, 0x1a, 0x05, 0x7c, 0x44, 0x4f, 0xa9, 0x77, 0x72, 0xee, 0x9a, 0xef, 0xdb, 0x89},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (memcmp(uuid, known[i], FGV_UUID_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

CUresult fgv_handshake_table(const void **table, const CUuuid *id)
{
    if (!table || !id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof(served_tables) / sizeof(served_tables[0]); i++) {
        if (memcmp(id->bytes, served_tables[i].uuid, FGV_UUID_BYTES) == 0) {
            atomic_fetch_add_explicit(&nr_tables_served, 1, memory_order_relaxed);
            *table = shown(served_tables[i].table, served_tables[i].uuid);
            return CUDA_SUCCESS;
        }
    }
    atomic_fetch_add_explicit(&nr_tables_refused, 1, memory_order_relaxed);
    if (is_logging()) {
        unsigned char uuid[FGV_UUID_BYTES];
        memcpy(uuid, id->bytes, sizeof(uuid));
        log_line("table refused", uuid, "");
    }
    const struct fgv_handshake_ops *ops = fgv_handshake_ops_get();
    if (ops && ops->tool_refused && is_of_tools(id->bytes)) {
        ops->tool_refused();
    }
    *table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
