"""The command behind `make demo`."""

import sys

from rich.console import Console

from backend_host.demo.acts import Demo
from backend_host.errors import FairGVError
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals


def main() -> int:
    """Exit status: 0 all verdicts are PASS, 1 one is not or the demo cannot run, 128 + N ended by signal N."""
    console = Console()
    try:
        with raised_signals():
            return Demo(console).run()
    except FairGVError as error:
        Console(stderr=True).print(f"demo: {error}", markup=False, highlight=False)
        return 1
    except InterruptedBySignalError as interruption:
        console.print("ended; everything is cleaned up")
        return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main())
