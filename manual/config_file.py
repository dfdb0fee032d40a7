"""A configuration file in which every key stands as a comment, with what it means and its default: what packages put into /etc/fairgv.

Tables are there without their comment signs, so that who takes one from a key need not think of its table; an empty one changes nothing.
"""

import textwrap
from collections.abc import Iterator

from backend_host import config_keys
from backend_host.config_keys import HEADS, TABLES, Key

OF_INSTALLATION = {
    "state_dir": "/run/fairgv",
    "softgpu_library": "/usr/lib/fairgv/build/softgpu/libcuda.so.1",
    "guest_library": "/usr/lib/fairgv/build/guest/libcuda.so.1",
}
"""Defaults of root's daemon where a package is installed."""
_WIDTH = 100
_HEAD = """\
# The configuration of FairGV's daemon: fairgv.toml(5). Each key has its default here; take the sign from before those that are to be different.
# fairgv-host config check names what is wrong, fairgv-host reload has the daemon read this again, and says of what it takes a start.
"""


def config_file() -> str:
    """The file's text."""
    keys = list(config_keys.keys())
    lines = [_HEAD, *(line for key in keys if not key.table for line in _entry(key))]
    for table in TABLES:
        lines += [*_comment(config_keys.about(table)), f"[{HEADS.get(table, table)}]", ""]
        lines += [line for key in keys if key.table == table for line in _entry(key)]
    return "\n".join(lines).rstrip() + "\n"


def _entry(key: Key) -> Iterator[str]:
    """What a key means in comments, then the key. One without a default of its own is not there to be taken as it stands."""
    if key.table in HEADS:
        yield from _comment(f"{key.name} ({key.kind}): {key.meaning}")
        yield ""
        return
    yield from _comment(key.meaning)
    if key.allowed:
        yield from _comment(f"Allowed: {key.allowed}.")
    here = OF_INSTALLATION.get(key.name)
    yield f"#{key.name} = {config_keys.toml(here) if here else key.default}"
    yield ""


def _comment(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
