"""Draws docs/pictures/top.svg: what `fairgv-host top` shows of a daemon that runs, after a minute: `python -m benchmarks.top_picture`.

For example, with three guests of a daemon in DIR, started each as `fairgv-run --state-dir DIR --vgpu NAME --weight W -- PROGRAM`:

    python -m benchmarks.top_picture --state-dir DIR
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from textual.pilot import Pilot

from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.state_dir import default_state_dir
from backend_host.top.app import Top
from backend_host.top.asking import Asker
from backend_host.top.figures import Looks
from benchmarks.pictures import PICTURES

PATH = PICTURES / "top.svg"
SIZE = (96, 14)
MINUTE_S = 60.0
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""That the picture would have whoever opens it fetch; there is one of the reader's own behind them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where no daemon answers."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.top_picture", description="Draws docs/pictures/top.svg."
    )
    parser.add_argument("--state-dir", type=Path, default=default_state_dir(), help="of the daemon")
    parser.add_argument("--seconds", type=float, default=MINUTE_S, help="how long to look before (default 60)")
    options = parser.parse_args(arguments)
    asker = Asker(lambda: Connection(options.state_dir / "control.sock"))
    looks = Looks()

    async def draw(pilot: Pilot[object]) -> None:
        await asyncio.sleep(options.seconds)
        await pilot.pause()
        PATH.write_text(_FONTS.sub("", pilot.app.export_screenshot(title="fairgv-host top")))
        pilot.app.exit()

    try:
        app = Top(asker, looks, looks.add(asker.ask("status")), 1.0)
    except FairGVError as error:
        print(error, file=sys.stderr)
        return 1
    app.run(headless=True, size=SIZE, auto_pilot=draw)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
