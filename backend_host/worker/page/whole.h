/*
 * Why a launch runs whole, though it is large. Python gives those of kernels and images (cuda_api/whole.py names all
 * of them); the worker those of launches.
 */
#ifndef BACKEND_HOST_WHOLE_H
#define BACKEND_HOST_WHOLE_H

enum fgv_whole {
    FGV_WHOLE_NOT = 0, /* it runs in parts */
    FGV_WHOLE_NO_PTX = 1,
    FGV_WHOLE_COOPERATIVE = 2,
    FGV_WHOLE_CLUSTERS = 3,
    FGV_WHOLE_NOT_COMPILED = 14,
    FGV_WHOLE_NOT_LAUNCHED = 15,
    FGV_WHOLE_LAUNCH_ATTRIBUTE = 16,
    FGV_WHOLE_GRAPH = 17,
    FGV_WHOLE_OTHER_CONTEXT = 22,
    FGV_WHOLE_HELD_UP = 23,
};

#define FGV_NR_WHOLE 32u /* room for the counters of all, and of newer ones */

#endif
