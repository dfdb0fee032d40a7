"""vGPUs that use one Gpu at the same time: spaces, their users, MPS, and what tells of them. docs/space.md is for people.

From the bottom: `mps` runs NVIDIA's control daemon, `client` is a process of ours among a space's, `space` is one space and `spaces` all of a
Gpu, `urgent` and `search` decide what the control page says of them, and `telling` and `command` show it.
"""
