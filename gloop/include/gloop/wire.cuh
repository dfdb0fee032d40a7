/*
 * What the host loop and the event loops on the device agree on, as plain data: where requests, answers and states of
 * blocks lie.
 *
 * Each word has one writer. A request travels as a bit that the block flips in `asked`, its answer as the same bit that
 * the host flips in `answered`: where both are equal, nothing is out. So no word is ever set back, and a kernel that
 * ends in between loses nothing.
 */
#ifndef GLOOP_WIRE_CUH
#define GLOOP_WIRE_CUH

#include <cstddef>
#include <cstdint>

namespace gloop
{

/* Where a kernel's event loops keep the two callbacks in use: about 900 bytes of shared memory, or none of it. */
struct Shared;
struct Global;

namespace detail
{

constexpr unsigned slots_per_block = 32;
constexpr std::size_t closure_bytes = 384;
constexpr std::size_t name_bytes = 256;
constexpr std::size_t page_bytes = 64 * 1024;
constexpr unsigned pages_each_way = 64;
constexpr unsigned most_keeps = 8;
constexpr unsigned own_places = 2; /* of postTaskPerThread: the callback that runs, and the next one */

enum class Call : std::uint32_t {
    open,
    read,
    write,
    mmap,
    munmap,
    msync,
    fstat,
    ftruncate,
    close,
    connect,
    bind,
    unbind,
    accept,
    receive,
    send,
    end, /* of a socket */
};

/* A request and its answer, one cache line in pinned memory. The block writes it, and the host does once the request is
 * out. */
struct alignas(64) Line {
    Call call;
    std::int32_t fd;
    std::int32_t flags;
    std::int32_t mode; /* or a port */
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t address; /* in the device's memory, of the program's buffer */
    std::uint64_t page;    /* pinned, with what is written or was read; 0: the driver copies */
    std::int64_t result;
};
static_assert(sizeof(Line) == 64, "a request is one cache line");

/* What the host tells a block: its own line, as all blocks poll. `orders`: not zero ends the launch. */
struct alignas(64) Answers {
    std::uint32_t answered;
    std::uint32_t orders;
};

/* What a block tells the host at any time, packed, so that the host looks at eight blocks at once. */
struct Asked {
    std::uint32_t asked;
    std::uint32_t released; /* pages whose content has been taken: a bit that flips, as well */
};

/* What a block tells the host when it leaves a kernel. */
enum class Left : std::uint32_t { nothing, finished, ready, waiting, forced };
struct State {
    Left left;
    std::uint32_t waiting; /* slots whose answers it has not taken */
};

/* Why a block trapped: the context is lost then, pinned memory is not. */
struct Failure {
    char text[160];
    char file[160];
    std::int32_t line;
    std::uint32_t is_set;
};

/* In the device's memory, one for each host loop. The first three are zero when a kernel starts. */
struct Control {
    std::uint32_t begun; /* blocks in the kernel */
    std::uint32_t idle;  /* of these, how many have had nothing to do for long */
    std::uint32_t stop;  /* a block has left, so all shall */
    std::uint32_t next;  /* logical block that nobody has begun */
    std::uint32_t busy_pages[pages_each_way / 32];
};

struct alignas(16) Slot {
    void *callback;
    std::int64_t result;
    std::uint32_t own; /* its place among the closures that each thread has */
    std::uint32_t page;
    std::uint64_t unused;
    unsigned char closure[closure_bytes];
};

/* A piece of shared memory, by its offset: its address is another one in another kernel. */
struct Keep {
    std::uint32_t offset;
    std::uint32_t bytes;
};

/* Where a block is, as all its threads know it: what survives the end of a kernel. */
struct Place {
    std::uint32_t free;
    std::uint32_t ready;
    std::uint32_t waiting;
    std::uint32_t asked;
    std::uint32_t released;
    std::uint32_t own_free;
    std::uint32_t current;
    std::uint32_t logical;
    std::uint32_t keeps;
    std::uint32_t is_finished;
};

/* A block's context in the device's memory. What it keeps of shared memory lies behind the last context,
 * `Launch::kept_bytes` each. */
struct Context {
    Place place;
    Keep keeps[most_keeps];
    Slot slots[slots_per_block];
};

/* The kernel's argument beside the program's closure. */
struct Launch {
    Context *contexts;
    unsigned char *kept;
    unsigned char *own; /* closures of threads: for each block, place and thread */
    Control *control;
    const std::uint32_t *give_way;
    Asked *asked;
    Answers *answers;
    State *states;
    Line *lines;
    char *names;
    unsigned char *pages; /* of what is written */
    Failure *failure;
    std::uint64_t kept_bytes;
    std::uint64_t own_bytes;
    std::uint64_t look_cycles;
    std::uint64_t idle_cycles; /* 0: never */
    std::uint32_t logical[3];
    std::uint32_t points; /* after so many a block leaves; 0: only when it is told to */
    std::uint32_t is_resumed;
};

} // namespace detail
} // namespace gloop

#endif
