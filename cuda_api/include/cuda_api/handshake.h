/*
 * The private tables through which NVIDIA's runtime accepts a driver library.
 *
 * Every copy of the CUDA runtime (libcudart.so, and the static copies inside nvcc programs, cuBLAS, cuDNN, ...) asks
 * libcuda.so.1 for undocumented function tables by UUID, with cuGetExportTable, and refuses to start without some of
 * them. Two libraries of ours pose as libcuda.so.1, the guest library and the software device: each compiles the C
 * files of cuda_api/common/handshake into itself and lends it a struct of functions. Nothing here leaves the process:
 * the integrity check hashes this process's id, thread and addresses, and context-local storage holds pointers of this
 * process, so neither can be forwarded to a host.
 *
 * Served: CUDART_INTERFACE, TOOLS_RUNTIME_CALLBACK_HOOKS, TOOLS_TLS, CONTEXT_LOCAL_STORAGE, INTEGRITY_CHECK,
 * CONTEXT_CHECKS, the tables 21318c60 of cuBLAS and cudart >= 13.4, 1734dc26 of cuBLASLt 13 and 6e163fbe of cuFFT.
 * Anything else is refused with CUDA_ERROR_NOT_FOUND and counted.
 *
 * Wrong when: a newer runtime calls a slot we only know as a number. FAIRGV_LOG=handshake in the environment then
 * prints one line to stderr for each UUID refused and for each such slot called; fgv_handshake_statistics counts both
 * always.
 *
 * How an embedder uses it:
 *
 *     static const struct fgv_handshake_ops ops = { .driver_version = ..., ... };          // all but the last three
 *     __attribute__((constructor)) static void start(void) { fgv_handshake_set_ops(&ops); }
 *     CUresult cuGetExportTable(const void **table, const CUuuid *id) { return fgv_handshake_table(table, id); }
 *     fgv_handshake_context_destroyed(context);  // in cuCtxDestroy, cuDevicePrimaryCtxReset and the last Release
 *
 * All functions may be called from any thread, before cuInit too. None needs more than libc of glibc 2.28.
 */
#ifndef CUDA_API_HANDSHAKE_H
#define CUDA_API_HANDSHAKE_H

#include <stdint.h>

#include "cuda_api/types.h"

#define FGV_HIDDEN __attribute__((visibility("hidden")))

/* Of one function of a module; other than 0: enough. */
typedef int (*fgv_handshake_function_callback)(void *user, CUfunction function, const char *name);

/*
 * What the handshake asks of the library that it is part of. Called without any lock of the handshake held, so an op
 * may take the embedder's own locks. Devices are ordinals 0 .. device_count() - 1, in the order that cuDeviceGet shows
 * them; version, count, UUIDs and PCI addresses must be what cuDriverGetVersion, cuDeviceGetCount, cuDeviceGetUuid
 * (both versions of it) and the attributes PCI_DOMAIN_ID, PCI_BUS_ID, PCI_DEVICE_ID report, for the whole life of the
 * process: the runtime computes the same hash from those, and a mismatch is cudaErrorSoftwareValidityNotEstablished
 * (103) in every later runtime call.
 */
struct fgv_handshake_ops {
    /* As cuDriverGetVersion reports it, 13000 for CUDA 13.0. */
    int (*driver_version)(void);
    int (*device_count)(void);
    CUresult (*device_uuid)(int ordinal, CUuuid *uuid);
    /* domain_bus_device[0..2]: PCI domain, bus, device. */
    CUresult (*device_pci)(int ordinal, int domain_bus_device[3]);

    /*
     * The context current to the calling thread: CUDA_SUCCESS and a context, or NULL in *context with either
     * CUDA_SUCCESS or CUDA_ERROR_INVALID_CONTEXT when there is none. On the path of nearly every runtime call: one
     * thread-local read, please.
     */
    CUresult (*current_context)(CUcontext *context);
    /*
     * The handle of the device's primary context, neither retained nor activated by this: a later
     * cuDevicePrimaryCtxRetain returns the same handle, and cuDevicePrimaryCtxGetState says inactive until then. In the
     * guest: without a round trip to the host.
     */
    CUresult (*primary_context)(CUcontext *context, CUdevice device);
    /* As cuModuleLoadData; image is a fat binary's wrapper or its bare header (fgv_image_bytes, cuda_api/fatbin.h). */
    CUresult (*module_load)(CUmodule *module, const void *image);

    /* As cuCtxGetId: unique for the life of the process, never 0. */
    CUresult (*context_id)(CUcontext context, uint64_t *id);
    /*
     * The embedder's own record of a stream, as an opaque address that stays readable for as long as the stream lives.
     * stream is never NULL here: the default stream comes as CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. A bad one:
     * CUDA_ERROR_INVALID_HANDLE.
     */
    CUresult (*stream_object)(CUcontext context, CUstream stream, void **object);
    /* As cuStreamGetId, of a record from stream_object. cuBLASLt keys its workspaces by it: two streams, two ids. */
    CUresult (*stream_object_id)(CUcontext context, void *object, uint64_t *id);

    /* May be NULL. Calls the callback for each function of the module until that has enough. */
    CUresult (*module_functions)(CUmodule module, fgv_handshake_function_callback callback, void *user);

    /* May be NULL. A debugger or profiler has asked for a table of its own, in vain. */
    void (*tool_refused)(void);

    /*
     * May be NULL. What programs are given for a table that is served, instead of the table itself: a copy whose slots
     * note that they are called, say. Always the same for the same table.
     */
    const void *(*table_shown)(const void *table, const unsigned char uuid[16]);
};

struct fgv_handshake_statistics {
    uint64_t nr_tables_served;    /* cuGetExportTable calls answered with a table */
    uint64_t nr_tables_refused;   /* ... answered with an error */
    uint64_t nr_unknown_slots;    /* calls of slots of unknown meaning, answered with CUDA_ERROR_NOT_SUPPORTED */
    uint64_t nr_integrity_checks; /* the runtime makes three for each copy of itself in the process */
};

/* Lends the handshake its ops, which stay valid for the life of the process. Once, before the first table is used. */
FGV_HIDDEN void fgv_handshake_set_ops(const struct fgv_handshake_ops *ops);

/*
 * cuGetExportTable. CUDA_ERROR_INVALID_VALUE for a NULL argument; CUDA_ERROR_NOT_FOUND and *table = NULL for a table we
 * do not serve. The tables are static: valid before cuInit, and at the same address for the life of the process.
 */
FGV_HIDDEN CUresult fgv_handshake_table(const void **table, const CUuuid *id);

/*
 * Forgets what runtimes stored under this context, and runs their destructors in the calling thread, without a lock
 * held; they may call back into the driver and into these tables. Call it when the context is destroyed or reset, while
 * its handle is still valid, with none of your own locks held. Calling it for a context that has nothing stored costs
 * one load and is harmless.
 */
FGV_HIDDEN void fgv_handshake_context_destroyed(CUcontext context);

FGV_HIDDEN struct fgv_handshake_statistics fgv_handshake_statistics(void);

#endif
