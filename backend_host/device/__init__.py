"""A device of the host as the daemon serves it."""
