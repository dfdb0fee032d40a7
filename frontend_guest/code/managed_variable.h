/*
 * __managed__ variables. The host's driver puts them where it likes, in the worker. The program gets memory at the same
 * address, with the same bytes: what it wrote there is sent before the next work for the device, and what the device
 * wrote is fetched when the program has waited for it. So both see what CUDA promises where they do not run at the same
 * time.
 *
 * Wrong when: program and device write or watch a variable while both run; when its address is taken in the program
 * (CUDA_ERROR_NOT_SUPPORTED, and a line on stderr); in contexts other than that of the first work.
 */
#ifndef FRONTEND_GUEST_MANAGED_VARIABLE_H
#define FRONTEND_GUEST_MANAGED_VARIABLE_H

#include <stdint.h>

void fgv_managed_variables_forget(uint64_t library);
/* Before a call is sent, and after it was answered, while there are any (call.h). */
void fgv_managed_variables_before(uint16_t call);
void fgv_managed_variables_after(uint16_t call);

#endif
