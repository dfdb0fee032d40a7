"""PTX instructions into LLVM text, one module for each family of them."""
