/* What the cases of softgpu's driver have in common: see driver_cases.c. */
#ifndef TESTS_SOFTGPU_DRIVER_CASES_H
#define TESTS_SOFTGPU_DRIVER_CASES_H

#include "cuda_api/prototypes.h"

#define HEADER ".version 8.0\n.target sm_80\n.address_size 64\n"

#define CHECK(call) check(call, #call, __LINE__)

/* The primary context of the first device, and the module of the kernels in it once one was asked for. */
extern CUcontext context;
extern CUmodule module;

void check(CUresult result, const char *call, int line);
void say(const char *what, CUresult result);
void say_text(const char *text);
void wait_for_line(void);
void start(void);
CUfunction function(const char *name);
CUresult launch(const char *name, unsigned int grid, unsigned int block, void **parameters);
/* A kernel that sets the first of these flags and runs until the program sets the second. */
volatile unsigned int *hold(CUstream stream);
CUresult fill(CUdeviceptr out, unsigned int value, unsigned int grid, unsigned int block);
/* Fills an array and looks at it; the exit code of most cases. */
int works(void);

/* driver_cases_checkpoint.c */
int case_checkpoint_states(const char *argument);
int case_checkpoint_pairs(const char *argument);
int case_checkpoint_memory(const char *argument);
int case_checkpoint_timeout(const char *argument);
int case_checkpoint_blocks(const char *argument);
int case_checkpoint_refused(const char *kind);

/* driver_cases_devices.c */
int case_two_devices(const char *argument);
int case_move(const char *argument);
int case_fails(const char *argument);
int case_fails_within(const char *argument);

/* driver_cases_faults.c */
int case_fault(const char *argument);
int case_two_contexts(const char *argument);
int case_trap(const char *argument);
int case_deadlock(const char *argument);
int case_own_fault(const char *argument);
int case_misaligned(const char *argument);
int case_stray(const char *argument);
int case_own_memory(const char *argument);

/* driver_cases_memory.c */
int case_addresses(const char *argument);
int case_pieces(const char *argument);
int case_physical(const char *argument);
int case_remap(const char *argument);
int case_registered_in_a_reservation(const char *argument);
int case_reserve(const char *argument);
int case_kinds(const char *argument);

/* driver_cases_remote.c */
int case_ask(const char *argument);
int case_asked(const char *argument);

/* driver_cases_sharing.c */
int case_share(const char *kind);
int case_take(const char *kind);
int case_forged(const char *argument);
int case_forged_pool(const char *argument);
int case_lies(const char *argument);
/* Start, and map memory that another process has, too: the one says what the other hears. */
CUdeviceptr share_physical(void);
CUdeviceptr take_physical(void);
int case_record(const char *argument);
int case_await(const char *argument);

/* driver_cases_space.c */
int case_space(const char *argument);
int case_relay_here(const char *argument);
int case_relay_ask(const char *argument);
int case_relay_answer(const char *argument);

/* driver_cases_streams.c */
int case_order(const char *argument);
int case_own_streams(const char *argument);
int case_row(const char *argument);

/* driver_cases_tiers.c */
int case_tiers(const char *argument);

#endif
