"""What is known of PTX before any of it is lowered, and where a kernel is cut. Nothing here knows LLVM."""
