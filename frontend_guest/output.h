/* What kernels printed: see output.c. */
#ifndef FRONTEND_GUEST_OUTPUT_H
#define FRONTEND_GUEST_OUTPUT_H

/* Prints what kernels printed, if the worker has something. For calls that have just waited. */
void fgv_output_print(void);

#endif
