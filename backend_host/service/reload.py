"""The configuration read again while the daemon serves: checked whole, then put in the place of the one before, whole.

What is not among LIVE takes a start. Where that differs nothing is changed, and it is named.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backend_host.config import Config, read_again
from backend_host.errors import RefusedError
from backend_host.service.kept import FOLDER, KeptVGpu, KeptVGpus, read_kept

LIVE = {"balance", "vgpu", "limits", "users", "region_bytes", "run_region_bytes"}
_FOR_LIFE = {"users.group", "users.admin_group"}
_OF_THE_COMMAND = {"state_dir", "is_private", "goes_around", "file", "given"}


@dataclass(frozen=True)
class Change:
    """A key, in a table after a dot, and what it was and is; None: not there."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}"


class Reloading:
    """`check` raises RefusedError for a configuration that this host cannot serve by; `apply` serves by one. Thread-safe."""

    def __init__(
        self, config: Config, kept: KeptVGpus, check: Callable[[Config], None], apply: Callable[[Config], None]
    ) -> None:
        """Raises ConfigError for what is wrong in `vgpus.d`."""
        self._config = config
        self._kept = kept
        self._wanted: Mapping[str, KeptVGpu] = read_kept(config)
        self._has_begun = False
        self._check = check
        self._apply = apply
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Has the vGPUs of `vgpus.d`, as that was read last: once vGPUs may be made at all."""
        with self._lock:
            self._has_begun = True
            self._kept.begin(self._wanted)

    def again(self) -> None:
        """Tries those of them again that could not be had. Others may have made room."""
        with self._lock:
            self._kept.again()

    def run(self) -> list[Change]:
        """What changed. Raises ConfigError or RefusedError, and nothing has changed then."""
        with self._lock:
            config = read_again(self._config)
            wanted: Mapping[str, KeptVGpu] = read_kept(config)
            changes = differences(self._config, config)
            if fixed := [change.key for change in changes if not _is_live(change.key)]:
                raise RefusedError(
                    f"{', '.join(fixed)}: what was changed there takes effect when the daemon is started anew, and until then nothing of the "
                    "configuration is read; put it back, or start the daemon anew"
                )
            self._check(config)
            before = self._kept.now if self._has_begun else self._wanted
            if self._has_begun:
                wanted = self._kept.swap(wanted)
            self._apply(config)
            self._config, self._wanted = config, wanted
            return [*changes, *_kept_differences(before, wanted)]


def differences(before: Config, after: Config) -> list[Change]:
    """By key, as files have it."""
    found = []
    for field in dataclasses.fields(Config):
        if field.name in _OF_THE_COMMAND:
            continue
        old, new = getattr(before, field.name), getattr(after, field.name)
        if dataclasses.is_dataclass(old) and not isinstance(old, type):
            was, will = dataclasses.asdict(old), dataclasses.asdict(new)
            found += [Change(f"{field.name}.{key}", was[key], will[key]) for key in was if was[key] != will[key]]
        elif old != new and field.name == "slice_ns":
            found.append(Change("slice_ms", old / 1e6, new / 1e6))
        elif old != new:
            found.append(Change(field.name, old, new))
    return found


def _kept_differences(before: Mapping[str, KeptVGpu], after: Mapping[str, KeptVGpu]) -> list[Change]:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [Change(f"{FOLDER}.{name}", _written(before.get(name)), _written(after.get(name))) for name in names]


def _written(kept: KeptVGpu | None) -> dict[str, Any] | None:
    return kept.written() if kept is not None else None


def _is_live(key: str) -> bool:
    return key.partition(".")[0] in LIVE and key not in _FOR_LIFE


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items() if each not in ("", 0))
    return str(value) if value != "" else "''"
