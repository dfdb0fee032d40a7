"""Where the contexts of a program are, as the daemon tells it and commands read it."""

from dataclasses import dataclass

ON, OFF = "on", "off"


@dataclass(frozen=True)
class Contexts:
    """Of one program: `on` the device or `off` it, whether that is about to change, and why it does not."""

    where: str
    is_moving: bool = False
    why: str = ""
