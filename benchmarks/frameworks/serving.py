"""What an inference server does around its model: requests that come at random, the stretch in which they count, the report.

`serve` is all of it. Servers are told of their stretch as benchmarks/programs/stretch.h says, and report what benchmarks/programs/inference.cu
does.

The Python that has a framework need not have FairGV: this needs the standard library alone, and a program beside it imports it as
`serving`, which is where Python looks first for what a script imports.

Wrong by what the interpreter takes between two requests, some ten us.
"""

import argparse
import json
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

LONGEST_LEAD_S = 3600.0
"""More is no lead, but a time of the day."""
PERCENTILE = 0.95
NO_STRETCH = (
    "a window is three numbers on standard input: when it begins, in s from now, how long it lasts, and how much of that each edge takes, "
    "half of it at most"
)


class NoStretchError(Exception):
    """What was told on standard input is no stretch."""


@dataclass(frozen=True)
class Stretch:
    """When requests count, on the monotonic clock; less and less within an edge of either end."""

    begin_s: float
    end_s: float
    edge_s: float

    @property
    def counted_s(self) -> float:
        """The seconds that count."""
        return self.end_s - self.begin_s - self.edge_s

    def has(self, at_s: float) -> bool:
        """Whether that is within it."""
        return self.begin_s <= at_s < self.end_s

    def part_of(self, at_s: float) -> float:
        """How much of a request counts that ended then: what the means of the edges' counts differ by."""
        if not self.has(at_s) or not self.edge_s:
            return float(self.has(at_s))
        return min(1.0, (at_s - self.begin_s) / self.edge_s, (self.end_s - at_s) / self.edge_s)


def parse_stretch(line: str, now_s: float) -> Stretch:
    """Of 'LEAD LENGTH EDGE' in seconds, as of now. NoStretchError."""
    try:
        lead_s, length_s, edge_s = map(float, line.split())
    except ValueError:
        raise NoStretchError(NO_STRETCH) from None
    if not (0 <= lead_s <= LONGEST_LEAD_S and 0 < length_s < math.inf and 0 <= edge_s <= length_s / 2):
        raise NoStretchError(NO_STRETCH)
    return Stretch(now_s + lead_s, now_s + lead_s + length_s, edge_s)


@dataclass(frozen=True)
class Request:
    """From its arrival, or its begin where nothing queues up, to its end, on the monotonic clock."""

    begin_s: float
    end_s: float


class Arrivals:
    """When requests come: `mean_s` apart in the mean, exponentially distributed. `is_queue`: whether the last one is answered or not."""

    def __init__(self, mean_s: float, is_queue: bool, seed: int) -> None:
        self.is_queue = is_queue
        self._mean_s, self._chance = mean_s, random.Random(seed)

    def after(self, request: Request) -> float:
        """The next one: so long after the last one came, or where nothing queues up, after its end."""
        last_s = request.begin_s if self.is_queue else request.end_s
        return last_s + self._mean_s * self._chance.expovariate(1.0)


class Clock(Protocol):
    """What `answer_requests` goes by."""

    def now_s(self) -> float:
        """On the monotonic clock."""

    def is_over_by(self, at_s: float) -> bool:
        """Sleeps until then, or until the program is to end: whether it is."""


def answer_requests(answer: Callable[[], None], arrivals: Arrivals, clock: Clock) -> list[Request]:
    """One request after the other until the program is to end: those that were answered."""
    begin_s = clock.now_s()
    next_s, requests = arrivals.after(Request(begin_s, begin_s)), list[Request]()
    while not clock.is_over_by(next_s):
        begin_s = next_s if arrivals.is_queue else clock.now_s()
        answer()
        requests.append(Request(begin_s, clock.now_s()))
        next_s = arrivals.after(requests[-1])
    return requests


def report(requests: Sequence[Request], stretch: Stretch, batch: int) -> dict[str, float | str]:
    """What the program prints. `requests` and their times in us are of all that ended in the stretch, the rest is of what counts."""
    times_s = sorted(request.end_s - request.begin_s for request in requests if stretch.has(request.end_s))
    counted = math.fsum(stretch.part_of(request.end_s) for request in requests)
    nr = len(times_s)
    return {
        "throughput": counted * batch / stretch.counted_s,
        "unit": "images/s",
        "counted_requests": counted,
        "seconds": stretch.counted_s,
        "requests": nr,
        "request_us": 1e6 * math.fsum(times_s) / nr if nr else 0.0,
        "request_p95_us": 1e6 * times_s[math.ceil(PERCENTILE * nr) - 1] if nr else 0.0,
    }


class Watch:
    """The stretch, from a thread of its own: `Clock` of the program, which is to end when the stretch and a word behind it have come.

    `seconds` None: it asks on standard input.
    """

    def __init__(self, seconds: float | None) -> None:
        self.stretch: Stretch | None = None
        self._seconds = seconds
        self._is_over = threading.Event()
        # A daemon, so that a program whose model fails does not wait for somebody to tell it that it is over.
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def begin(self) -> None:
        """From now on."""
        self._thread.start()

    def now_s(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def is_over_by(self, at_s: float) -> bool:
        """See `Clock`."""
        return self._is_over.wait(max(0.0, at_s - time.monotonic()))

    def _wait(self) -> None:
        try:
            if self._seconds is None:
                self._wait_as_told()
            else:
                now_s = time.monotonic()
                self.stretch = Stretch(now_s, now_s + self._seconds, 0.0)
                time.sleep(self._seconds)
        finally:
            self._is_over.set()

    def _wait_as_told(self) -> None:
        print("ready", flush=True)
        # Unbuffered: the interpreter cannot end while a thread is in a buffered read.
        with open(0, "rb", buffering=0, closefd=False) as lines:
            try:
                self.stretch = parse_stretch(lines.readline().decode(errors="replace"), time.monotonic())
            except NoStretchError as error:
                print(error, file=sys.stderr)
                return
            time.sleep(max(0.0, self.stretch.end_s - time.monotonic()))
            lines.readline()


def add_options(parser: argparse.ArgumentParser) -> None:
    """When requests come, and when they count."""
    coming = parser.add_mutually_exclusive_group()
    coming.add_argument("--rate", type=_positive, metavar="R", help="requests a second, at random; they queue up")
    coming.add_argument(
        "--pause-ms",
        type=_not_negative,
        default=0.0,
        metavar="MS",
        help="mean of the pauses between a request's end and the next one, at random (default 0)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is random (default %(default)d)")
    counting = parser.add_mutually_exclusive_group()
    counting.add_argument(
        "--seconds", type=_positive, default=10.0, metavar="S", help="count for so long (default %(default)g)"
    )
    counting.add_argument("--together", action="store_true", help="count when standard input says")


def serve(answer: Callable[[], None], batch: int, options: argparse.Namespace) -> int:
    """Answers requests of `batch` images each with `answer`, which has run before, and prints the report. Exit status."""
    mean_s = options.pause_ms / 1000 if options.rate is None else 1 / options.rate
    arrivals = Arrivals(mean_s, options.rate is not None, options.seed)
    watch = Watch(None if options.together else options.seconds)
    watch.begin()
    requests = answer_requests(answer, arrivals, watch)
    if watch.stretch is None:
        return 2
    print(json.dumps(report(requests, watch.stretch, batch)), flush=True)
    return 0


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return number
