"""The command behind `make demo`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from backend_host.demo.acts import SECONDS, Demo
from backend_host.errors import FairGVError
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals

MOST_SECONDS = 3600


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 all verdicts are PASS, 1 one is not or the demo cannot run, 2 wrong usage, 128 + N ended by signal N."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Two virtual machines share one device: programs that end, then shares by weight."
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help=f"how long shares are looked at ({SECONDS}), and half as long with another weight",
    )
    options = parser.parse_args(arguments)
    console = Console()
    try:
        with raised_signals():
            return Demo(console, options.seconds).run()
    except FairGVError as error:
        Console(stderr=True).print(f"demo: {error}", markup=False, highlight=False)
        return 1
    except InterruptedBySignalError as interruption:
        console.print("ended; everything is cleaned up")
        return interruption.exit_code


def _seconds(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= MOST_SECONDS):
        raise argparse.ArgumentTypeError(f"whole seconds, from 1 to {MOST_SECONDS}, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
