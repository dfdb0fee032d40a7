"""Programs on GLoop, each also without it, and what is measured with them."""
