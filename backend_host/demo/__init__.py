"""`make demo`: two virtual machines share one device, ordinary CUDA programs in them compute on it, and weights say who gets how much.

Everything is private and temporary: a libvirtd, a fairgv-host daemon, two domains that boot the host's kernel from memory with the programs of
`build/programs` and one of `build/benchmarks`. Nothing of the user's own machines is touched, and nothing stays behind, after Ctrl-C neither.
Each program checks its own result inside the guest and says so by its exit status; the figures come from `fairgv-host status --json`.

Wrong when: it is read as a benchmark. Software emulation slows the guests down, not the device, and shares are those of seconds.
"""
