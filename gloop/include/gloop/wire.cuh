/* What the host loop and the event loops on the device agree on, as plain data: where requests, answers and states lie.
 * Each word is written by one side. A request is a bit that the block flips in `asked`, its answer the same bit that
 * the host flips in `answered`: where both are equal, nothing is out. So no word is ever set back, and a kernel that
 * ends in between loses nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gloop
{
/* Where a kernel's event loops keep the two callbacks in use: 960 bytes of shared memory, or 128. */
struct Shared;
struct Global;

namespace detail
{
constexpr unsigned slots_per_block = 32;
constexpr size_t closure_bytes = 384;
constexpr size_t name_bytes = 256;
constexpr size_t page_bytes = 64 * 1024;
constexpr uint32_t page_in = 1, page_out = 2; /* a block's two pages in pinned memory, as bits */
constexpr unsigned most_keeps = 8;
constexpr uint32_t no_logical = ~0u;
constexpr unsigned own_places = 2; /* closures of postTaskPerThread that wait at once */

enum class Call { open, read, write, map, unmap, sync, stat, resize, connect, bind, close, accept, receive, send };

/* A request and its answer in pinned memory. The block writes it, and the host does once the request is out. */
struct alignas(64) Line {
    Call call;
    int32_t fd = -1;
    uint64_t offset = 0, bytes = 0;
    uint64_t address = 0;        /* in the device's memory, of the program's buffer */
    int32_t flags = 0, mode = 0; /* or the port */
    uint64_t page = 0; /* pinned, with what is written or was read; 0: the driver copies. At first which of the two */
    int64_t result = 0;
};
static_assert(sizeof(Line) == 64, "a request is one cache line");

/* What the host tells a block, in one word of a line of its own, since blocks poll it across the bus: which slots are
 * answered, whether to end the launch, and the last result with its slot, where it has 25 bits at most. */
struct alignas(64) Answers {
    uint64_t word;
    static constexpr uint64_t order = 1ull << 32;
    static constexpr unsigned slot_shift = 33, result_shift = 39;
    static uint64_t with(uint64_t before, unsigned slot, int64_t result)
    {
        const uint64_t told = uint64_t(result) << result_shift | uint64_t(slot | slots_per_block) << slot_shift;
        return ((before ^ 1ull << slot) & (2 * order - 1)) | (int64_t(told) >> result_shift == result ? told : 0);
    }
};

/* What a block tells the host when it leaves, unless it has finished at once. `waiting`: for answers not yet taken. */
enum class Left : uint32_t { finished, ready, waiting, forced };
struct State {
    Left left;
    uint32_t waiting;
};

/* Why a block trapped: the context is lost then, pinned memory is not. */
struct Failure {
    char text[160], file[160];
    int32_t line;
    uint32_t is_set;
};

/* In the device's memory, one for each host loop. All zero when a launch begins, the first three when it goes on. */
struct Control {
    uint32_t begun; /* blocks in the kernel */
    uint32_t idle;  /* of these, how many have had nothing to do for long */
    uint32_t stop;  /* a block has left, so all shall */
    uint32_t next;  /* logical block that nobody has begun, from the first on that no block has by its number */
};

struct alignas(16) Slot {
    void *callback;
    int64_t result;
    uint64_t address;
    uint32_t own; /* which of the places that each thread has, for postTaskPerThread */
    uint32_t page;
    alignas(16) unsigned char closure[closure_bytes];
};

/* A piece of shared memory, by its offset: its address is another one in another kernel. */
struct Keep {
    uint32_t offset, bytes;
};

/* Where a block is, as its first thread knows it: what survives the end of a kernel. Masks are of slots; `running` is
 * the one whose callback runs, `arrived` are those whose answers still lie in pages. */
struct alignas(16) Place {
    uint32_t free, ready, running, current;
    uint32_t waiting, arrived, asked, busy_pages;
    uint32_t own_free, logical, keeps, is_finished;
};

struct Context {
    Place place;
    Keep keeps[most_keeps];
    Slot slots[slots_per_block];
};

/* The kernel's argument beside the program's closure. */
struct Launch {
    Context *contexts;         /* by block, in the device's memory, as the next four are */
    unsigned char *kept, *own; /* shared memory that is kept; closures of threads */
    Control *control;
    const uint32_t *give_way;
    uint32_t *asked; /* by block, pinned, as all others are; packed, since the host looks at all */
    Answers *answers;
    State *states;
    Line *lines; /* by block and slot */
    char *names;
    unsigned char *pages; /* by block, two each */
    Failure *failure;
    uint64_t kept_bytes, own_bytes, page_bytes; /* of a block, a closure, a page */
    uint64_t look_cycles, idle_cycles;          /* 0: never */
    uint3 logical;                              /* how many logical blocks there are */
    uint32_t points;                            /* after so many a block leaves; 0: only when it is told to */
    uint32_t is_resumed;
};
} // namespace detail
} // namespace gloop
