"""Under which names results are recorded: policies, and what they are compared with. Plots have other words for them."""

from benchmarks.guests import MPS, NATIVE
from scheduler.fair import FairQueuing

OURS = FairQueuing.name
"""The policy of FairGV's paper, and of all figures without bounds: there `elastic`, the default, chooses as it does, event by event."""
BURSTS = "bursts"
"""The same policy with turns by bursts in place of slices."""
WORDS = {OURS: "FairGV", NATIVE: "the driver's time slices", MPS: "MPS"}


def in_words(system: str) -> str:
    """For people."""
    return "turns by bursts" if system == BURSTS else WORDS.get(system, f"policy {system}")
