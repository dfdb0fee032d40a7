/*
 * Large launches in parts, so that the GPU can be handed over within one.
 *
 * A kernel of more blocks than a threshold is launched by way of a variant of it (cuda_api/ptx/variants), which is made
 * from the PTX of its image when it is first needed: variant.c. take.c says which launches those are, parts.c carries
 * them out.
 */
#ifndef BACKEND_HOST_PARTS_STATE_H
#define BACKEND_HOST_PARTS_STATE_H

#include "client/state.h"
#include "cuda_api/variants.h"

struct fgw_lane;
struct fgw_making;

#define FGW_MAX_PARTS_IN_FLIGHT 3u
#define FGW_MAX_MAKINGS         16u /* a guest that launches thousands of kernels waits for no more at a time */

/* cffi: begin */
enum fgw_slicing_mode { FGW_SLICING_OFF = 0, FGW_SLICING_BOXES = 1, FGW_SLICING_PERSISTENT = 2 };

/* As the host's operator wants it. */
struct fgw_slicing_settings {
    uint32_t mode;
    uint32_t waits_for_variant; /* not 0: a launch waits until its variant is made; else it goes whole until then */
    uint64_t threshold_blocks;  /* larger launches go in parts */
    uint64_t least_blocks;      /* of a part */
    uint64_t part_ns;           /* of a part, if it has so many blocks; 0: parts have as few blocks as may be */
    uint64_t run_blocks;        /* tests set it: after so many a persistent kernel stops by itself; 0: when told to */
    uint64_t take_back_ns;      /* tests set it: so often places that came free are taken back; 0: when told to */
    uint64_t split_address;     /* of the split word, as kernels load it; 0: there is none */
    uint32_t shares_device;     /* not 0: what the device does not take at once goes persistently, whatever the mode */
};

/* The variant that is wanted. */
struct fgw_variant_wish {
    uint32_t owner_kind; /* enum fgv_handle_kind: a module, or a library */
    uint64_t owner;
    const char *kernel;
    uint32_t mode;
    int32_t capability; /* of the device: 90 for 9.0 */
};

/* Called from the loop. What goes wrong in any of them means that kernels run whole. */
struct fgw_variant_maker {
    void (*keep)(uint32_t owner_kind, uint64_t owner, const uint8_t *image, uint64_t image_bytes);
    void (*forget)(uint32_t owner_kind, uint64_t owner);
    void (*read)(struct fgw_making *making);
    void (*go_on)(struct fgw_making *making);
};
/* cffi: end */

/* A constant is copied from the original before each launch: the program may have changed it. */
struct fgw_variant_constant {
    CUdeviceptr from, to;
    size_t bytes;
};

struct fgw_variant {
    struct fgw_context *context;
    CUlibrary library;
    CUfunction function;
    CUdeviceptr state;    /* of a persistent one: struct fgv_persistent_state */
    uint64_t taken_bytes; /* of the device, by as much as its text has; its variables are the original's */
    uint32_t mode;
    uint32_t descriptor_offset;
    bool is_let_go;         /* a persistent kernel that nobody stops any more may still use its counter */
    uint64_t block_ns_1024; /* 1024 times what a block takes of the device, 0: unknown */
    uint32_t nr_constants;
    struct fgw_variant_constant constants[];
};

/* A box of a grid that is on the device. */
struct fgw_part {
    uint64_t seq, nr_blocks, submitted_ns;
    bool is_in_lane;
};

/* The launch that goes in parts, one at a time: its request stays at the head of the backlog until the last is out. */
struct fgw_parts {
    struct fgw_variant *variant; /* NULL: there is none */
    uint32_t next[3];            /* the first block that is not submitted */
    uint64_t nr_blocks_left;     /* to be submitted, or, persistently, not known to be taken */
    bool has_begun;
    bool is_let_go;   /* something before it does not end: all that is left is submitted at once */
    bool is_awaited;  /* no variant yet: what is on the device is let end first */
    uint32_t context; /* its handle, and the stream's: the guest's numbers */
    uint64_t stream;
    struct fgw_lane *lane; /* for every other box, NULL: there is none */
    bool has_entered;      /* the lane */
    bool was_in_lane;      /* the last part */
    uint64_t stopped_ns;   /* a persistent kernel was first told to stop, 0: it was not */
    uint64_t told_ns;      /* and last */
    uint32_t most_each;    /* its blocks that fit a multiprocessor */
    bool is_forked;        /* the lane may be entered beside it */
    bool gave_way;         /* it ended with numbers left, and nobody had told it to */
    bool wants_back;       /* blocks that gave way are to come back */
    uint64_t wanted_ns;    /* since when, or when that was last so */
    uint64_t looked_ns;    /* when it was last looked at whether the split leaves a place */
    struct fgw_part in_flight[FGW_MAX_PARTS_IN_FLIGHT];
    uint32_t nr_in_flight;
    uint64_t done_ns; /* when a part was last seen to end */
};

enum fgw_parts_state {
    FGW_PARTS_MORE,  /* not now, or not all of it */
    FGW_PARTS_OUT,   /* the last part is submitted, or one failed: `result` is what the launch gives */
    FGW_PARTS_WHOLE, /* it has its turn to go whole */
    FGW_PARTS_TAKEN, /* it goes in parts from now on */
};

/* The data of this floor. */
struct fgw_slicing {
    struct fgw_slicing_settings settings;
    struct fgw_variant_maker maker;
    struct fgw_parts parts;
    uint32_t seen_split;                         /* that stood in the split word, by the word of who writes it */
    struct fgw_making *makings[FGW_MAX_MAKINGS]; /* those that somebody waits for */
    uint32_t nr_makings;
};

#endif
