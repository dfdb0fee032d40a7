/*
 * Makes inputs of the worker's fuzzer out of inputs: it knows records and handles. A number of a handle comes from a
 * small pool, the same for all kinds, so that numbers are used again, used after their end, and used for another kind.
 */
#include <stdbool.h>
#include <string.h>

#include "cuda_api/types.h"
#include "cuda_api/values.h"
#include "requests.h"
#include "worker.h"

#define NR_CALLS        (sizeof(fuzz_calls) / sizeof(fuzz_calls[0]))
#define MAX_RECORDS     64u
#define MAX_PAYLOAD     96u
#define MAX_MADE        (sizeof(CUgraphNodeParams) + MAX_PAYLOAD)
#define SPAN_STEP       (UINT64_C(2) << 20)
#define PARAMETER_BYTES 32u /* of any function of the stand-in's */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static uint64_t state;

static uint32_t roll(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % below;
}

static uint64_t some_number(void)
{
    static const uint64_t numbers[] = {0,          1,          2,     3,    4,          8,          16,
                                       64,         255,        1024,  4096, 65536,      1ull << 20, 1ull << 31,
                                       0xffffffff, 1ull << 47, ~0ull, 512,  1ull << 16, 1ull << 24};
    return roll(3) != 0 ? numbers[roll(sizeof(numbers) / sizeof(numbers[0]))] : roll(1u << 16);
}

static uint64_t some_handle(uint8_t kind)
{
    const uint64_t number = 3 + roll(5);
    const bool is_hosts =
        kind == FGV_HANDLE_GRAPH || kind == FGV_HANDLE_GRAPH_NODE || (kind == FUZZ_ANY && roll(3) == 0);
    if (kind == FGV_HANDLE_STREAM && roll(3) == 0) {
        return roll(3);
    }
    const uint64_t as = kind == FUZZ_ANY ? FGV_HANDLE_GRAPH + roll(2) : kind;
    return is_hosts ? UINT64_C(3) << 62 | as << 56 | (1 + roll(8)) : roll(64) == 0 ? some_number() : number;
}

static uint64_t some_value(const struct fuzz_field *field)
{
    static const uint64_t memory = UINT64_C(0x700000000000);
    if (field->kind != FUZZ_NUMBER && field->kind != FUZZ_PAYLOAD) {
        return some_handle(field->kind);
    }
    if (field->bytes == 8 && roll(3) == 0) {
        return memory + (roll(2) ? roll(8) * 4096u : roll(8) * SPAN_STEP);
    }
    return roll(4) == 0 ? some_number() : roll(6);
}

static void fill(const struct fuzz_call *call, uint8_t *fixed, uint32_t payload_bytes, uint32_t of)
{
    for (uint32_t i = call->first_field; i < call->end_field; i++) {
        const struct fuzz_field *field = &fuzz_fields[i];
        for (uint32_t j = 0; j < field->count && j < 64; j++) {
            const bool is_size = field->kind == FUZZ_PAYLOAD && roll(4) != 0;
            const uint64_t value = is_size ? payload_bytes : some_value(field);
            if (roll(of) == 0 && field->bytes <= 8) {
                memcpy(fixed + field->offset + j * field->bytes, &value, field->bytes);
            }
        }
    }
}

/* Nothing, a name, words, or what a graph's node is told by. */
static uint32_t some_payload(void)
{
    switch (roll(4)) {
    case 0:
        return 0;
    case 1:
        return 1 + roll(4);
    case 2:
        return 8 * roll(MAX_PAYLOAD / 8);
    default:
        return sizeof(CUgraphNodeParams) + 8 * roll(8);
    }
}

/* What a node of a graph is told by. True: its kernel's parameters have to follow. */
static bool fill_node(uint8_t *payload)
{
    static const uint32_t types[] = {
        CU_GRAPH_NODE_TYPE_KERNEL,    CU_GRAPH_NODE_TYPE_MEMSET,   CU_GRAPH_NODE_TYPE_HOST,
        CU_GRAPH_NODE_TYPE_GRAPH,     CU_GRAPH_NODE_TYPE_EMPTY,    CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_CONDITIONAL};
    const uint32_t type = types[roll(sizeof(types) / sizeof(types[0]))];
    const uint64_t first = type == CU_GRAPH_NODE_TYPE_GRAPH ? some_handle(FGV_HANDLE_GRAPH) : some_handle(FUZZ_NUMBER);
    memcpy(payload, &type, sizeof(type));
    memcpy(payload + offsetof(CUgraphNodeParams, kernel), &first, sizeof(first));
    return type == CU_GRAPH_NODE_TYPE_KERNEL;
}

/* Makes the payload what the call needs, and the members that count it. False: any will do. */
static bool fit(const struct fuzz_call *call, uint8_t *fixed, uint8_t *payload, uint32_t *payload_bytes)
{
    switch (call->number) {
    case FGV_CALL_cuLaunchKernel: {
        struct fgv_request_cuLaunchKernel launch;
        memcpy(&launch, fixed, sizeof(launch));
        launch.nr_parameter_bytes = PARAMETER_BYTES;
        launch.nr_attributes = roll(4) == 0;
        launch.flags = roll(4) == 0 ? FGV_LAUNCH_FLAG_KERNEL : 0;
        launch.grid[0] = 1 + roll(40);
        launch.grid[1] = launch.grid[2] = 1;
        memcpy(fixed, &launch, sizeof(launch));
        payload[PARAMETER_BYTES] = (uint8_t)roll(18);
        *payload_bytes = PARAMETER_BYTES + launch.nr_attributes * (uint32_t)sizeof(CUlaunchAttribute);
        return true;
    }
    case FGV_CALL_graph_add_node: {
        struct fgv_request_graph_add_node add;
        memcpy(&add, fixed, sizeof(add));
        add.nr_nodes = add.has_edges = 0;
        add.fill = roll(4) == 0;
        add.drain = roll(4) == 0;
        add.nr_parameter_bytes = fill_node(payload) ? PARAMETER_BYTES : 0;
        memcpy(fixed, &add, sizeof(add));
        *payload_bytes = (uint32_t)sizeof(CUgraphNodeParams) + add.nr_parameter_bytes;
        return true;
    }
    case FGV_CALL_graph_set_node: {
        struct fgv_request_graph_set_node set;
        memcpy(&set, fixed, sizeof(set));
        set.fill = roll(4) == 0;
        set.drain = roll(4) == 0;
        set.nr_parameter_bytes = fill_node(payload) ? PARAMETER_BYTES : 0;
        memcpy(fixed, &set, sizeof(set));
        *payload_bytes = (uint32_t)sizeof(CUgraphNodeParams) + set.nr_parameter_bytes;
        return true;
    }
    default:
        return false;
    }
}

/* The daemon does something: what the first words of a message mean is its affair. */
static size_t make_told(uint8_t *to, size_t room)
{
    struct fuzz_told told = {.word = roll(FUZZ_NR_WORDS)};
    const uint32_t message_bytes = told.word == FUZZ_MESSAGE ? 24 + roll(2) * 8 : 0;
    const struct fuzz_head head = {
        .bytes = (uint16_t)(sizeof(told) + message_bytes), .response = FUZZ_TOLD, .rounds = (uint8_t)roll(4)};
    if (sizeof(head) + head.bytes > room) {
        return 0;
    }
    for (uint32_t i = 0; i < 3; i++) {
        told.values[i] = roll(3) == 0 ? some_number() : roll(2) ? roll(4) : roll(16) * SPAN_STEP;
    }
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), &told, sizeof(told));
    for (uint32_t i = 0; i < message_bytes; i += 8) {
        const uint64_t value = roll(3) == 0 ? some_number() : roll(2) ? roll(6) : roll(16) * SPAN_STEP;
        memcpy(to + sizeof(head) + sizeof(told) + i, &value, sizeof(value));
    }
    return sizeof(head) + head.bytes;
}

/* What is hostile of a region, or what the daemon should not have handed over. It counts as the first record alone. */
static size_t make_taking(uint8_t *to, size_t room)
{
    const uint32_t nr = 1 + roll(2);
    const struct fuzz_head head = {.bytes = (uint16_t)(nr * sizeof(struct fuzz_patch)), .response = FUZZ_TAKE};
    if (sizeof(head) + head.bytes > room) {
        return 0;
    }
    memcpy(to, &head, sizeof(head));
    for (uint32_t i = 0; i < nr; i++) {
        const uint32_t which = roll(3);
        const uint32_t base = which == 0 ? 0 : which == 1 ? FUZZ_OF_ENTRY : FUZZ_OF_ASSIGNMENT;
        const struct fuzz_patch one = {.offset = base + (which == 2 ? roll(8) : roll(24) * 8 + roll(2) * 4),
                                       .nr_bytes = roll(2) ? 4 : 8,
                                       .value = some_number()};
        memcpy(to + sizeof(head) + i * sizeof(one), &one, sizeof(one));
    }
    return sizeof(head) + head.bytes;
}

static size_t make(uint8_t *to, size_t room)
{
    if (roll(12) == 0) {
        return make_told(to, room);
    }
    const struct fuzz_call *call = &fuzz_calls[roll(NR_CALLS)];
    uint32_t payload_bytes = call->has_payload ? some_payload() : 0;
    struct fuzz_head head = {.response = (uint8_t)roll(16), .rounds = (uint8_t)(roll(4) == 0)};
    struct fgv_wire_header header = {.call = call->number, .context = roll(8) != 0 ? 3 : 3 + roll(4)};
    uint8_t *fixed = to + sizeof(head) + sizeof(header);
    uint8_t *payload = fixed + call->request_bytes;
    if (sizeof(head) + sizeof(header) + call->request_bytes + MAX_MADE > room) {
        return 0;
    }
    memset(to, 0, sizeof(head) + sizeof(header) + call->request_bytes + MAX_MADE);
    fill(call, fixed, payload_bytes, 1);
    if (roll(4) == 0 || !fit(call, fixed, payload, &payload_bytes)) {
        for (uint32_t i = 0; i < payload_bytes; i += 8) {
            payload[i] = (uint8_t)(roll(3) == 0 ? 0 : roll(4) != 0 ? roll(14) : 'a' + roll(3));
        }
    }
    head.bytes = (uint16_t)(sizeof(header) + call->request_bytes + payload_bytes);
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), &header, sizeof(header));
    return sizeof(head) + head.bytes;
}

static const struct fuzz_call *call_of(const uint8_t *record)
{
    uint16_t number;
    if (record[2] == FUZZ_TOLD || record[2] == FUZZ_TAKE) {
        return NULL;
    }
    memcpy(&number, record + sizeof(struct fuzz_head), sizeof(number));
    for (uint32_t i = 0; i < NR_CALLS; i++) {
        if (fuzz_calls[i].number == number) {
            return &fuzz_calls[i];
        }
    }
    return NULL;
}

/* Where records begin; the last is the end of what makes sense. */
static uint32_t find(const uint8_t *data, size_t size, uint32_t *at)
{
    uint32_t nr = 0;
    size_t offset = sizeof(struct fuzz_start);
    while (nr < MAX_RECORDS && offset + sizeof(struct fuzz_head) + sizeof(struct fgv_wire_header) <= size) {
        struct fuzz_head head;
        memcpy(&head, data + offset, sizeof(head));
        if (head.bytes < sizeof(struct fgv_wire_header) || offset + sizeof(head) + head.bytes > size) {
            break;
        }
        at[nr++] = (uint32_t)offset;
        offset += sizeof(head) + head.bytes;
    }
    at[nr] = (uint32_t)offset;
    return nr;
}

static size_t put(uint8_t *data, size_t size, size_t max_size, size_t at, const uint8_t *record, size_t bytes)
{
    if (size + bytes > max_size) {
        return size;
    }
    memmove(data + at + bytes, data + at, size - at);
    memcpy(data + at, record, bytes);
    return size + bytes;
}

static void change(uint8_t *record, size_t bytes)
{
    const struct fuzz_call *call = call_of(record);
    const size_t head_bytes = sizeof(struct fuzz_head) + sizeof(struct fgv_wire_header);
    if (call && bytes >= head_bytes + call->request_bytes && roll(4) != 0) {
        fill(call, record + head_bytes, (uint32_t)(bytes - head_bytes - call->request_bytes), 1 + roll(6));
    } else if (bytes > head_bytes) {
        LLVMFuzzerMutate(record + head_bytes, bytes - head_bytes, bytes - head_bytes);
    }
    if (roll(16) == 0) {
        record[2] = roll(2) ? FUZZ_MOVE : (uint8_t)roll(16);
    }
    if (roll(8) == 0) {
        record[3] = (uint8_t)roll(3);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    uint32_t at[MAX_RECORDS + 1];
    uint8_t record[4096];
    state = seed;
    if (size < sizeof(struct fuzz_start)) {
        const struct fuzz_start start = {.seed = seed, .busy_of_256 = 64, .fail_at = -1};
        memcpy(data, &start, sizeof(start));
        size = sizeof(start);
    }
    uint32_t nr = find(data, size, at);
    size = at[nr];
    const uint32_t nr_changes = 1 + roll(4);
    for (uint32_t i = 0; i < nr_changes; i++) {
        const uint32_t which = nr != 0 ? roll(nr) : 0;
        switch (roll(10)) {
        case 0: {
            struct fuzz_start start = {.seed = roll(1u << 30),
                                       .fails_of_256 = (uint8_t)(roll(3) ? 0 : roll(40)),
                                       .busy_of_256 = (uint8_t)roll(256),
                                       .flags = (uint8_t)(roll(4) != 0 ? roll(32) : roll(128)),
                                       .fail_at = roll(2) ? -1 : (int32_t)roll(200)};
            memcpy(data, &start, sizeof(start));
            break;
        }
        case 1:
            if (nr != 0) {
                memmove(data + at[which], data + at[which + 1], size - at[which + 1]);
                size -= at[which + 1] - at[which];
            }
            break;
        case 2:
            if (nr != 0 && at[which + 1] - at[which] <= sizeof(record)) {
                memcpy(record, data + at[which], at[which + 1] - at[which]);
                size = put(data, size, max_size, at[roll(nr + 1)], record, at[which + 1] - at[which]);
            }
            break;
        case 3:
            if (roll(8) == 0) {
                size =
                    put(data, size, max_size, sizeof(struct fuzz_start), record, make_taking(record, sizeof(record)));
                break;
            } /* fallthrough */
        case 4:
        case 5:
            size = put(data, size, max_size, at[roll(2) ? nr : which], record, make(record, sizeof(record)));
            break;
        default:
            if (nr != 0) {
                change(data + at[which], at[which + 1] - at[which]);
            }
        }
        nr = find(data, size, at);
    }
    return size;
}
