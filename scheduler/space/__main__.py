"""`python -m scheduler.space`."""

import sys

try:
    from scheduler.space.command import main
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    sys.exit(
        "python -m scheduler.space: searches that predict need numpy, which no package of ours brings: pip install numpy"
    )

sys.exit(main())
