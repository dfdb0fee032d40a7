"""Under which names results are recorded: policies, and what they are compared with."""

from scheduler.fair import FairQueuing

OURS = FairQueuing.name
"""The policy of FairGV's paper, and of all figures without bounds: there `elastic`, the default, chooses as it does, event by event."""
