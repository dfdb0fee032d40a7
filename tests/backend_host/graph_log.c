/*
 * A device library that passes every call on to the one it is linked against, and writes a line into the file
 * FAIRGV_GRAPH_LOG for each graph that is made, "+", and for each that is destroyed, "-". Of a capture that is on it
 * tells no graph, as the oldest drivers. Built by test_worker_graph_numbers.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"

static CUresult noted(CUresult result, const char line[2])
{
    const int file = open(getenv("FAIRGV_GRAPH_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || (result == CUDA_SUCCESS && write(file, line, 2) != 2)) {
        abort();
    }
    close(file);
    return result;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    __typeof__(cuGraphCreate) *next = dlsym(RTLD_NEXT, "cuGraphCreate");
    return noted(next(phGraph, flags), "+\n");
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    __typeof__(cuGraphClone) *next = dlsym(RTLD_NEXT, "cuGraphClone");
    return noted(next(phGraphClone, originalGraph), "+\n");
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    __typeof__(cuStreamEndCapture) *next = dlsym(RTLD_NEXT, "cuStreamEndCapture");
    return noted(next(hStream, phGraph), "+\n");
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    __typeof__(cuGraphDestroy) *next = dlsym(RTLD_NEXT, "cuGraphDestroy");
    return noted(next(hGraph), "-\n");
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    __typeof__(cuStreamGetCaptureInfo_v3) *next = dlsym(RTLD_NEXT, "cuStreamGetCaptureInfo_v3");
    CUresult result =
        next(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out);
    if (graph_out) {
        *graph_out = NULL;
    }
    return result;
}
