"""The one exception that callers of this package see. Its text goes to the operator as it stands."""

from backend_host.errors import FairGVError


class VmError(FairGVError):
    """Something about a virtual machine stands in the way. The text says what, and what to do about it."""


class NoPermissionError(VmError):
    """libvirt is there and refuses us: asking again changes nothing."""
