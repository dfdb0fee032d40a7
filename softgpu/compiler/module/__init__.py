"""From lowered instructions to whole LLVM modules: functions, kernels and their loops, tables."""
