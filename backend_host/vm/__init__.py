"""Virtual machines: the libvirt side of `fairgv-host attach`, and the small guests that the demo and the tests boot.

libvirt is imported here alone and only when it is needed, so that everything else works without it. Every refusal in
this package is a `VmError` whose text is one sentence for the operator: what stands in the way, and what to do about
it.
"""

from backend_host.vm.errors import VmError

__all__ = ["VmError"]
