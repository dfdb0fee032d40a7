"""A throw-away process that has a context and nothing else: `python -m backend_host.move.holder --library PATH --device N`.

It says `ready` once it has it, or why it has none, and ends when its standard input does: with the daemon at the latest.
"""

import argparse
import os
import sys

from backend_host.worker.main import WorkerError, opened


def main() -> int:
    """The process."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", type=int, required=True)
    options = parser.parse_args()
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # a worker gives its own to what kernels print
    try:
        context = opened(options.library, options.device)
    except WorkerError as error:
        print(error, file=said, flush=True)
        return 1
    print("ready", file=said, flush=True)
    sys.stdin.buffer.read()
    return 0 if context else 1


if __name__ == "__main__":
    os._exit(main())  # exit handlers of a device library have been known to hang
