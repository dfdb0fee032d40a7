"""Why a large launch runs whole and not in parts: what is counted, and shown. By itself, for those who need nothing of PTX."""

from enum import IntEnum


class Whole(IntEnum):
    """Why a launch runs whole. The numbers are those of `enum fgv_whole` in the worker."""

    NO_PTX = 1
    COOPERATIVE = 2
    CLUSTERS = 3
    GRID_SYNC = 4
    DYNAMIC_PARALLELISM = 5
    WAITS_FOR_BLOCKS = 6
    INDIRECT_CALLS = 7
    UNKNOWN_FUNCTION = 8
    TEXTURE_REFERENCE = 9
    HIDDEN_VARIABLE = 10
    SPECIAL_REGISTER = 11
    EARLY_RETURNS = 12
    ASYNCHRONOUS_UNITS = 13
    NOT_COMPILED = 14
    NOT_LAUNCHED = 15
    LAUNCH_ATTRIBUTE = 16
    GRAPH = 17
    TOO_LARGE = 18
    NEWER_MACHINE_CODE = 19
    SEPARATE_COMPILATION = 20
    NOT_UNDERSTOOD = 21
    OTHER_CONTEXT = 22
    HELD_UP_STREAM = 23

    @property
    def text(self) -> str:
        """In words, for people."""
        return self.name.lower().replace("_", " ")
