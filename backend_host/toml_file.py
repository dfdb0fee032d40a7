"""Files of settings, as they stand on the disk: TOML, by whoever wrote it."""

import re
import tomllib
from pathlib import Path
from typing import Any

from backend_host.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
"""A file with all keys has some KiB; what has more is another one, or never ends, as /dev/zero."""
_TABLE_OF_TOMLLIB = re.compile(r"\('[^()]*'\)|\('[^()]*',\)")
_WORD_OF_TOMLLIB = re.compile(r"'([^']*)'")
"""How tomllib says a table's name: as a tuple of Python's."""


def read_toml(path: Path) -> dict[str, Any]:
    """What stands in a file of TOML. Raises ConfigError, which names it."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is longer than {MAX_FILE_BYTES >> 20} MiB: it is no file of settings")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no TOML: byte {error.start} begins no character of UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {_TABLE_OF_TOMLLIB.sub(_bracketed, str(error))}") from error


def _bracketed(table: re.Match[str]) -> str:
    """As the file has it."""
    return f"[{'.'.join(_WORD_OF_TOMLLIB.findall(table[0]))}]"
