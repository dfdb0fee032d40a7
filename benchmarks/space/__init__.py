"""Programs that share the GPU in space, and what is measured with them."""
