/* What kernels printed: see output.c. */
#ifndef FRONTEND_GUEST_OUTPUT_H
#define FRONTEND_GUEST_OUTPUT_H

/* Prints what kernels printed, when the worker has something. Calls do so after they waited (call.h). */
void fgv_output_print(void);

#endif
