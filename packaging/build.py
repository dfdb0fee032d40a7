"""Makes a host's package: `python packaging/build.py deb|rpm FOLDER` writes it into FOLDER, for the distribution that this runs on."""

import sys
import tempfile
from pathlib import Path

import deb
import rpm
from files import CannotBuildError

KINDS = {"deb": deb.build, "rpm": rpm.build}


def main(kind: str, to: Path) -> int:
    """Exit status: 0, or 1 after a line on stderr."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        try:
            package = KINDS[kind](Path(work), to)
        except CannotBuildError as error:
            print(f"packages: {error}", file=sys.stderr)
            return 1
    print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
