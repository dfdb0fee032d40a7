"""`python -m scheduler.space`."""

import sys

from scheduler.space.command import main

sys.exit(main())
