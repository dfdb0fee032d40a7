"""LLVM text in the making: what a lowering is given to read PTX operands and to write instructions."""
