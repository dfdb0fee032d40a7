"""A host with several devices above the simulated Gpu: jobs that arrive and end, placement, moves, power."""
