/*
 * Saving and restoring all objects of a client.
 *
 * Contexts come first, then allocations, what is in contexts, and what else the client has of its own; of these the
 * highest and oldest first. So each handle stands behind what it goes with, and behind what it was made of, and a
 * driver that counts its objects gives them the values that they had.
 *
 * What comes back is held against what was saved: each object, once made, is saved again, and has to give the same
 * bytes.
 *
 * Wrong when: a texture in one context reads an array of a younger one. It is refused then, as the array is not there.
 */
#include "calls/objects.h"

#include <stdlib.h>
#include <string.h>

#include "client/current.h"
#include "client/handles.h"
#include "client/kind.h"

#define MAGIC   UINT64_C(0x4a424f2d56474146) /* "FAGV-OBJ" */
#define VERSION 2u

/* It begins the whole. */
struct start {
    uint64_t magic;
    uint64_t table_hash; /* calls and kinds have the same numbers only where it is the same */
    uint32_t version;
    uint32_t reserved;
    uint64_t bytes; /* of all that follows */
};

static bool tell(struct fgw_trouble *trouble, uint8_t kind, uint64_t number, CUresult result, const char *why)
{
    *trouble = (struct fgw_trouble){.why = why, .number = number, .kind = kind, .result = result};
    return why == NULL;
}

/* The number of the context with this place, 0 for none. */
static uint64_t context_at(const struct fgw_worker *worker, uint8_t home)
{
    return home != 0 ? worker->contexts[home - 1]->handle : 0;
}

/* ---- saving ---- */

static const char *save_in_context(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_kind *kind = &worker->handles.kinds[handle->kind];
    const uint64_t number = handle->kind == FGV_HANDLE_CONTEXT ? handle->number : context_at(worker, handle->home);
    struct fgw_context *before = worker->current;
    if (!kind->save) {
        return kind->cannot;
    }
    if (number != 0) {
        fgw_context_make_current(worker, fgw_context_find(worker, number));
        if (!worker->current || worker->current->handle != number) {
            return "the device library does not enter its context";
        }
    }
    const char *why = kind->save(worker, handle, saver);
    fgw_context_make_current(worker, before);
    return why;
}

static const char *save_one(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_handle above = fgw_handle_above(worker, handle);
    struct fgw_saved_head head = {.number = handle->number,
                                  .above = above.number,
                                  .context = context_at(worker, handle->home),
                                  .kind = handle->kind,
                                  .above_kind = above.kind};
    const uint64_t begin = saver->nr;
    fgw_saver_put(saver, &head, sizeof(head));
    const char *why = save_in_context(worker, handle, saver);
    if (saver->is_out_of_memory) {
        return "no memory";
    }
    head.bytes = saver->nr - begin - sizeof(head);
    memcpy(saver->bytes + begin, &head, sizeof(head));
    return why;
}

enum phase { CONTEXTS, ALLOCATIONS, IN_CONTEXTS, CLIENTS_OWN, PHASES };

static enum phase phase_of(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_handle top = *handle;
    for (struct fgw_handle above = top; above.number != 0; above = fgw_handle_above(worker, &above)) {
        top = above;
    }
    return handle->kind == FGV_HANDLE_CONTEXT      ? CONTEXTS
           : handle->kind == FGV_HANDLE_ALLOCATION ? ALLOCATIONS
           : top.kind == FGV_HANDLE_CONTEXT        ? IN_CONTEXTS
                                                   : CLIENTS_OWN;
}

static bool save_phase(struct fgw_worker *worker, enum phase phase, struct fgw_saver *saver,
                       struct fgw_trouble *trouble)
{
    struct fgw_handle handle;
    for (uint32_t at = 0; fgw_handle_down(worker, &at, &handle);) {
        const bool is_due = phase_of(worker, &handle) == phase && (saver->left_out >> handle.kind & 1) == 0;
        const char *why = is_due ? save_one(worker, &handle, saver) : NULL;
        if (!tell(trouble, handle.kind, handle.number, CUDA_SUCCESS, why)) {
            return false;
        }
    }
    return true;
}

bool fgw_objects_save(struct fgw_worker *worker, struct fgw_saver *saver, struct fgw_trouble *trouble)
{
    struct start start = {.magic = MAGIC, .table_hash = FGV_TABLE_HASH, .version = VERSION};
    const uint64_t begin = saver->nr;
    fgw_saver_put(saver, &start, sizeof(start));
    if (saver->is_out_of_memory) {
        return tell(trouble, 0, 0, CUDA_SUCCESS, "no memory");
    }
    for (enum phase phase = CONTEXTS; phase < PHASES; phase++) {
        if (!save_phase(worker, phase, saver, trouble)) {
            return false;
        }
    }
    start.bytes = saver->nr - begin - sizeof(start);
    memcpy(saver->bytes + begin, &start, sizeof(start));
    return true;
}

/* ---- restoring ---- */

/* Whether a handle of this kind may stand where the head says, before anything is made. */
static const char *check(struct fgw_worker *worker, const struct fgw_saved_head *head)
{
    static const uint8_t nothing[sizeof(head->reserved)];
    const struct fgw_kind *kind = &worker->handles.kinds[head->kind < FGW_NR_KINDS ? head->kind : 0];
    if (!kind->restore || head->above_kind >= FGW_NR_KINDS || (kind->above >> head->above_kind & 1) == 0 ||
        (head->above_kind == 0) != (head->above == 0) || (head->context != 0) != kind->is_of_context ||
        memcmp(head->reserved, nothing, sizeof(nothing)) != 0) {
        return FGW_SAVED_ODD;
    }
    if (head->above != 0 && fgw_handle_find(worker, head->above_kind, head->above).number == 0) {
        return "what it goes with is not there";
    }
    if (fgw_handle_find(worker, head->kind, head->number).number != 0) {
        return "its number is taken";
    }
    return NULL;
}

/* Whether what was made would be saved as it was. */
static bool is_equal(struct fgw_worker *worker, const struct fgw_saved_head *head, const uint8_t *bytes)
{
    const struct fgw_handle handle = fgw_handle_find(worker, head->kind, head->number);
    struct fgw_saver saver = {0};
    bool is_same = handle.number != 0 && !save_one(worker, &handle, &saver) &&
                   saver.nr == sizeof(*head) + head->bytes && memcmp(saver.bytes, head, sizeof(*head)) == 0 &&
                   memcmp(saver.bytes + sizeof(*head), bytes, head->bytes) == 0;
    free(saver.bytes);
    return is_same;
}

static const char *restore_one(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    const uint8_t *bytes = saved->bytes;
    const char *why = check(worker, head);
    if (!why && head->context != 0) {
        struct fgw_context *context = fgw_context_find(worker, head->context);
        fgw_context_make_current(worker, context);
        why = context && worker->current == context ? NULL : "its context is not there";
    }
    if (!why) {
        why = worker->handles.kinds[head->kind].restore(worker, head, saved);
    }
    if (!why && saved->left != 0) {
        why = FGW_SAVED_ODD;
    }
    return why || is_equal(worker, head, bytes) ? why : "it came out otherwise than it was";
}

static bool restore_all(struct fgw_worker *worker, struct fgw_saved *all, fgw_objects_memory memory,
                        struct fgw_trouble *trouble)
{
    while (all->left != 0) {
        struct fgw_saved_head head;
        const uint8_t *bytes = fgw_saved_take(all, &head, sizeof(head)) ? fgw_saved_view(all, head.bytes) : NULL;
        if (!bytes || head.bytes % FGW_SAVED_ALIGNMENT != 0) {
            return tell(trouble, 0, 0, CUDA_SUCCESS, FGW_SAVED_CUT_SHORT);
        }
        struct fgw_saved saved = {.bytes = bytes, .left = head.bytes};
        const char *why = NULL;
        if (memory && head.kind != FGV_HANDLE_CONTEXT && head.kind != FGV_HANDLE_ALLOCATION) {
            why = memory(worker);
            memory = NULL;
        }
        if (!why) {
            why = restore_one(worker, &head, &saved);
        }
        if (!tell(trouble, head.kind, head.number, saved.result, why)) {
            return false;
        }
    }
    return true;
}

bool fgw_objects_restore(struct fgw_worker *worker, const uint8_t *bytes, uint64_t nr_bytes, fgw_objects_memory memory,
                         struct fgw_trouble *trouble)
{
    struct fgw_saved all = {.bytes = bytes, .left = nr_bytes};
    struct start start;
    if (!fgw_saved_take(&all, &start, sizeof(start)) || start.bytes != all.left) {
        return tell(trouble, 0, 0, CUDA_SUCCESS, FGW_SAVED_CUT_SHORT);
    }
    if (start.magic != MAGIC || start.version != VERSION || start.table_hash != FGV_TABLE_HASH || start.reserved != 0) {
        return tell(trouble, 0, 0, CUDA_SUCCESS, "another version of FairGV saved them");
    }
    struct fgw_context *before = worker->current;
    const bool is_done = restore_all(worker, &all, memory, trouble);
    fgw_context_make_current(worker, before);
    return is_done;
}

/* ---- following ---- */

/* One handle among saved bytes. */
struct item {
    const uint8_t *at;
    struct fgw_saved_head head;
};

struct items {
    struct item *all;
    size_t nr;
};

static int by_name(const void *one, const void *other)
{
    const struct fgw_saved_head *a = &((const struct item *)one)->head, *b = &((const struct item *)other)->head;
    return a->kind != b->kind ? a->kind - b->kind : (a->number > b->number) - (a->number < b->number);
}

/* All of them, sorted by name; the caller frees them. False: no memory. These bytes are the worker's own. */
static bool list(const struct fgw_saver *saver, struct items *items)
{
    const uint8_t *end = saver->bytes + saver->nr;
    size_t nr = 0;
    for (int is_counted = 0; is_counted < 2; is_counted++) {
        nr = 0;
        for (const uint8_t *at = saver->bytes + sizeof(struct start); at < end;) {
            struct fgw_saved_head head;
            memcpy(&head, at, sizeof(head));
            if (is_counted) {
                items->all[nr] = (struct item){.at = at, .head = head};
            }
            nr++;
            at += sizeof(head) + head.bytes;
        }
        if (!is_counted) {
            items->all = calloc(nr + 1, sizeof(*items->all));
        }
        if (!items->all) {
            return false;
        }
    }
    items->nr = nr;
    qsort(items->all, nr, sizeof(*items->all), by_name);
    return true;
}

/* Whether these have the item just as it is. */
static bool have(const struct items *items, const struct item *item)
{
    const struct item *found = bsearch(item, items->all, items->nr, sizeof(*item), by_name);
    return found && found->head.bytes == item->head.bytes &&
           memcmp(found->at, item->at, sizeof(item->head) + item->head.bytes) == 0;
}

bool fgw_objects_follow(struct fgw_worker *worker, const struct fgw_saver *before, const struct fgw_saver *now,
                        struct fgw_trouble *trouble)
{
    struct items old = {0}, new = {0};
    bool is_done = list(before, &old) && list(now, &new);
    if (!is_done) {
        tell(trouble, 0, 0, CUDA_SUCCESS, "no memory");
    }
    for (size_t i = 0; is_done && i < old.nr; i++) {
        if (!have(&new, &old.all[i])) {
            fgw_worker_unbind(worker, old.all[i].head.kind, old.all[i].head.number);
        }
    }
    struct fgw_context *was_current = worker->current;
    for (const uint8_t *at = now->bytes + sizeof(struct start); is_done && at < now->bytes + now->nr;) {
        struct fgw_saved_head head;
        memcpy(&head, at, sizeof(head));
        struct fgw_saved saved = {.bytes = at + sizeof(head), .left = head.bytes};
        if (fgw_handle_find(worker, head.kind, head.number).number == 0) {
            const char *why = restore_one(worker, &head, &saved);
            is_done = tell(trouble, head.kind, head.number, saved.result, why);
        }
        at += sizeof(head) + head.bytes;
    }
    fgw_context_make_current(worker, was_current);
    free(old.all);
    free(new.all);
    return is_done;
}
