"""The walls of a worker: what the kernel keeps from a worker that its guest took over. docs/walls.md tells of each.

From the bottom: `settings` is what an operator may say of them, `root` which files a worker sees, `tenants` whose user it is, `cgroups` how
much of the host it gets, `start` puts them up, `check` says which of them this host can have.
"""
