/* See making.h. */
#define _GNU_SOURCE
#include "parts/making.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/current.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/state.h"
#include "page/bell.h"

#define NAP_NS 100000

struct fgw_making {
    struct fgw_variant_wish wish;
    const struct fgv_driver *driver;
    uint64_t context; /* its handle */
    _Atomic uint32_t nr_owners;
    _Atomic uint32_t step;
    uint64_t begun_ns;
    char *names; /* of variables, each with its terminating zero */
    uint32_t nr_names;
    uint64_t *addresses;
    char *constants;
    struct fgw_made made;
    char kernel[];
};

/* A copy of so many names. */
static char *copy_names(const char *names, uint32_t nr)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < nr; i++) {
        bytes += strlen(names + bytes) + 1;
    }
    char *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, names, bytes);
    }
    return copy;
}

static void let_go(struct fgw_making *making)
{
    /* acq_rel: what the other owner has written is seen before it is freed */
    if (atomic_fetch_sub_explicit(&making->nr_owners, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (making->made.library) {
        making->driver->cuLibraryUnload(making->made.library);
    }
    free(making->names);
    free(making->addresses);
    free(making->constants);
    free(making);
}

/* release: with the acquire in step_of, what belongs to the step is seen by whose turn it is */
static void set_step(struct fgw_making *making, enum fgw_making_step step)
{
    atomic_store_explicit(&making->step, (uint32_t)step, memory_order_release);
}

static enum fgw_making_step step_of(const struct fgw_making *making)
{
    return (enum fgw_making_step)atomic_load_explicit(&making->step, memory_order_acquire);
}

/* ---- the thread ---- */

const struct fgw_variant_wish *fgw_making_wish(const struct fgw_making *making)
{
    return &making->wish;
}

static void end_work(struct fgw_making *making, enum fgv_whole why)
{
    making->made.why_whole = why;
    making->made.took_ns = fgw_clock_ns() - making->begun_ns;
    set_step(making, FGW_MAKING_OVER);
    let_go(making);
}

void fgw_making_fail(struct fgw_making *making, int32_t why_whole)
{
    end_work(making, (enum fgv_whole)why_whole);
}

bool fgw_making_ask(struct fgw_making *making, const char *names, uint32_t nr_names)
{
    uint32_t step = FGW_MAKING_READ;
    making->names = copy_names(names, nr_names);
    making->addresses = calloc((size_t)nr_names + 1, sizeof(*making->addresses));
    making->nr_names = making->names && making->addresses ? nr_names : 0;
    return atomic_compare_exchange_strong_explicit(&making->step, &step, FGW_MAKING_ASKS, memory_order_release,
                                                   memory_order_relaxed);
}

uint64_t fgw_making_address(const struct fgw_making *making, uint32_t number)
{
    return number < making->nr_names ? making->addresses[number] : 0;
}

void fgw_making_compile(struct fgw_making *making, uint32_t mode, const char *text, const char *constants,
                        uint32_t nr_constants)
{
    const struct fgv_driver *driver = making->driver;
    making->constants = copy_names(constants, nr_constants);
    making->made = (struct fgw_made){
        .mode = mode, .text_bytes = strlen(text), .nr_constants = nr_constants, .constants = making->constants};
    const bool is_made =
        step_of(making) != FGW_MAKING_GIVEN_UP && making->constants && driver->cuLibraryLoadData &&
        driver->cuLibraryUnload &&
        driver->cuLibraryLoadData(&making->made.library, text, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS;
    if (!is_made) {
        making->made.library = NULL;
    }
    end_work(making, is_made ? FGV_WHOLE_NOT : FGV_WHOLE_NOT_COMPILED);
}

/* ---- the loop ---- */

struct fgw_making *fgw_making_begin(struct fgw_worker *worker, const struct fgw_variant_wish *wish, enum fgv_whole *why)
{
    struct fgw_slicing *slicing = worker->slicing;
    const size_t name_bytes = strlen(wish->kernel) + 1;
    *why = slicing->nr_makings < FGW_MAX_MAKINGS ? FGV_WHOLE_NOT_COMPILED : FGV_WHOLE_BEING_MADE;
    struct fgw_making *making = slicing->nr_makings < FGW_MAX_MAKINGS ? calloc(1, sizeof(*making) + name_bytes) : NULL;
    if (!making) {
        return NULL;
    }
    making->wish = *wish;
    making->wish.kernel = memcpy(making->kernel, wish->kernel, name_bytes);
    making->driver = &worker->driver;
    making->context = worker->current->handle;
    making->begun_ns = fgw_clock_ns();
    atomic_init(&making->nr_owners, 2);
    slicing->makings[slicing->nr_makings++] = making;
    slicing->maker.read(making);
    return making;
}

static void answer(struct fgw_worker *worker, struct fgw_making *making)
{
    const struct fgw_handle owner =
        fgw_handle_find(worker, (enum fgv_handle_kind)making->wish.owner_kind, making->wish.owner);
    struct fgw_context *before = worker->current, *context = fgw_context_find(worker, making->context);
    const char *name = making->names;
    if (context && owner.number != 0) {
        fgw_context_make_current(worker, context);
        for (uint32_t i = 0; i < making->nr_names; i++) {
            CUdeviceptr address = 0;
            size_t bytes = 0;
            if (fgw_variable_find(worker, owner.kind, owner.native, name, &address, &bytes) == CUDA_SUCCESS) {
                making->addresses[i] = address;
            }
            name += strlen(name) + 1;
        }
        fgw_context_make_current(worker, before);
    }
    set_step(making, FGW_MAKING_COMPILE);
    worker->slicing->maker.go_on(making);
}

void fgw_makings_poll(struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < worker->slicing->nr_makings; i++) {
        if (step_of(worker->slicing->makings[i]) == FGW_MAKING_ASKS) {
            answer(worker, worker->slicing->makings[i]);
        }
    }
}

bool fgw_making_is_over(const struct fgw_making *making)
{
    return step_of(making) == FGW_MAKING_OVER;
}

void fgw_making_wait(struct fgw_worker *worker, const struct fgw_making *making)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (;;) {
        fgw_makings_poll(worker);
        if (fgw_making_is_over(making)) {
            return;
        }
        nanosleep(&nap, NULL);
    }
}

struct fgw_made fgw_making_take(struct fgw_making *making)
{
    const struct fgw_made made = making->made;
    making->made.library = NULL;
    return made;
}

void fgw_making_end(struct fgw_worker *worker, struct fgw_making *making)
{
    struct fgw_slicing *slicing = worker->slicing;
    for (uint32_t i = 0; i < slicing->nr_makings; i++) {
        if (slicing->makings[i] == making) {
            slicing->makings[i] = slicing->makings[--slicing->nr_makings];
            break;
        }
    }
    if (atomic_exchange_explicit(&making->step, FGW_MAKING_GIVEN_UP, memory_order_acq_rel) == FGW_MAKING_ASKS) {
        slicing->maker.go_on(making); /* the thread lets go of it */
    }
    let_go(making);
}

bool fgw_making_is_of(const struct fgw_making *making, const struct fgw_context *context)
{
    return making->context == context->handle;
}
