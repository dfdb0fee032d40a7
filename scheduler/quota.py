"""How long a vGPU's turn lasts while others wait, by the bursts of its programs (Gemini, section 3.5.2).

A program that wants 8 ms of the GPU for each request is done with a request in one turn of 8 ms. In a slice of 6 ms it needs two, and waits for
all others in between; one of 30 ms is ended by its own pause, so it costs nothing there. So a quota follows the bursts: half of it is what it
was, half what the next burst is expected to take, and that is half the 90th percentile of the last ones and half the last one, as in the paper.

Then a turn has whole bursts: as many as fit a slice, one at least, and a twentieth more, as it lasts by the clock. A burst longer than
`most_ns` keeps the slice: it does not end in a turn that others could wait for. Shares do not change by it, as every turn is paid for; a
longer turn of one is a longer wait of the others.

Good when: programs answer requests, or wait for results, every few ms. Bad when: they always have work; they have no bursts, and the slice.
Wrong when: requests take very different times. Most are cut then, or the turn is longer than they need, which their pauses end.
"""

from dataclasses import dataclass

QUOTAS = ("slice", "bursts")
"""What the configuration and `fairgv-sim` may say: turns last a slice, or follow bursts."""

LOOK_NS = 250_000_000
"""Bursts are looked at so often. Quotas change by halves, so they follow a program within a second."""

DEFAULT_MOST_NS = 100_000_000
"""A person in front of a neighbour's program does not notice so much; three slices of a device that preempts."""

_PAUSES = 20
"""Pauses of up to a twentieth of a burst are in it (track/burst.c), and they take of the turn, but not of the GPU time that a quota counts."""

_HALF = 2
"""Alpha and beta of the paper are a half: of the 90th percentile and the last burst, of the last quota and the estimate."""


@dataclass
class Quota:
    """Of one program. Times in ns of GPU time."""

    last_ns: int = 0
    """What it came to last; 0: it had no burst yet."""

    def learn(self, percentile_ns: int, burst_ns: int) -> int:
        """Its bursts changed: nine in ten are no longer than the one, and the last one took the other. The quota."""
        estimate_ns = (percentile_ns + burst_ns) // _HALF
        self.last_ns = (self.last_ns + estimate_ns) // _HALF if self.last_ns else estimate_ns
        return self.last_ns


def turn_ns(quota_ns: int, slice_ns: int, most_ns: int = DEFAULT_MOST_NS) -> int:
    """How long a turn lasts by a quota: whole bursts. A quota of 0, or above `most_ns`, keeps the slice."""
    if not 0 < quota_ns <= most_ns:
        return slice_ns
    bursts_ns = max(1, slice_ns // quota_ns) * quota_ns
    return min(bursts_ns + bursts_ns // _PAUSES, max(slice_ns, most_ns))
