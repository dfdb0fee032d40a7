"""What may go wrong in a benchmark, told in one sentence."""

from backend_host.errors import FairGVError


class NotMeasurableError(FairGVError):
    """Something that cannot be measured here; the sentence says why."""


class ProgramFailedError(FairGVError):
    """A benchmark program ended with an error, a wrong result among them, or did not end."""
