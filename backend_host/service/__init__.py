"""The daemon as a service of its host: its manager, its users, its configuration read again, what was done to it."""
