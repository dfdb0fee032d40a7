/* Random work with all that CUDA has of memory, streams and graphs: see random_steps.h. */
#include "random_steps.h"
