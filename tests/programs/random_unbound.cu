/* random_work without what binds a program to its device, so that it moves by replay. */
#define NOTHING_BINDS
#include "random_steps.h"
