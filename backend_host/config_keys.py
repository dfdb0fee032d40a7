"""Each key of a configuration file with its kind, default and meaning, and a configuration written as such a file.

It is made from the declarations: names and defaults from the dataclasses, meanings from the sentences below their fields, what is allowed from
RULES and, for an entitlement, from PARAMETERS. `config show` and the manual page fairgv.toml(5) need it, nothing else does.

Wrong when: our sources are not installed. Sentences below fields are nowhere else.
"""

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import RULES, SIZES, Config, keys_of_file
from backend_host.device_settings import KEYS as DEVICE_KEYS
from backend_host.device_settings import GpuSettings
from backend_host.entitlement import PARAMETERS, Entitlement
from backend_host.limits import Limits
from backend_host.service.user_settings import UserSettings
from backend_host.walls.settings import SIZES as WALL_SIZES
from backend_host.walls.settings import WallSettings

TABLES: Mapping[str, type] = {
    "vgpu": Entitlement,
    "gpu": GpuSettings,
    "limits": Limits,
    "users": UserSettings,
    "walls": WallSettings,
}
HEADS = {"gpu": "gpu.0"}
"""What stands in brackets above a table where that is not its name: of tables of which there may be several, an example."""
_BY_PLACE = {
    "state_dir": "/run/fairgv of root, else fairgv in $XDG_RUNTIME_DIR",
    "softgpu_library": "the installation's",
    "guest_library": "the installation's",
}
"""Defaults that differ from user to user, or from host to host."""
_BY_SUFFIX = {"_bytes": "size", "_ms": "milliseconds", "_us": "microseconds", "_s": "seconds", "_blocks": "blocks"}
_BY_TYPE = {
    bool: "true or false",
    int: "whole number",
    float: "percent",
    str: "text",
    list: "list of texts",
    tuple: "list of texts",
}
_UNITS = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


@dataclass(frozen=True)
class Key:
    """One key. `table` is empty for those outside tables; `default` and `allowed` are for people; `allowed` is empty where `meaning` tells."""

    table: str
    name: str
    kind: str
    default: str
    meaning: str
    allowed: str


def keys() -> Iterator[Key]:
    """All of them, in the order of a file."""
    defaults = written(Config())
    meanings = _meanings(Config)
    for name in _outside_tables():
        field = _field(name)
        rule = RULES.get(field)
        default = _BY_PLACE.get(name) or toml(defaults[name])
        yield Key("", name, _kind(name, defaults[name]), default, meanings[field], rule.text if rule else "")
    for table, declared in TABLES.items():
        meanings = _meanings(declared)
        if table == "gpu":
            yield from (Key(table, name, _kind(name, True), "as for all", meanings[name], "") for name in DEVICE_KEYS)
            continue
        for name, value in _of_table(Config(), table).items():
            field = WALL_SIZES.get(name, name) if table == "walls" else name
            parameter = next((each for each in PARAMETERS.values() if table == "vgpu" and each.key == name), None)
            told = (parameter.help, parameter.rule) if parameter else (meanings[field], "")
            yield Key(table, name, _kind(field, value), toml(_for_people(table, name, value)), *told)


def about(table: str) -> str:
    """What a table is for."""
    return _meanings(Config)[table]


def written(config: Config, *, is_for_people: bool = True) -> dict[str, object]:
    """The values of all keys as a file may have them, by `device` or `vgpu.weight`; sizes as texts for people, else in bytes."""
    found: dict[str, object] = {}
    for name in _outside_tables():
        value = getattr(config, _field(name))
        if name == "slice_ms":
            value = value // 1_000_000 if value % 1_000_000 == 0 else value / 1e6
        found[name] = str(value) if isinstance(value, Path) else value
    for table in TABLES:
        found |= {f"{table}.{name}": value for name, value in _of_table(config, table).items()}
    if not is_for_people:
        return found
    return {name: _for_people(*_parted(name), value) for name, value in found.items()}


def toml(value: object) -> str:
    """A value as TOML has it. JSON's texts are TOML's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parted(name: str) -> tuple[str, str]:
    table, _, key = name.rpartition(".")
    return table, key


def _outside_tables() -> list[str]:
    return [name for name in keys_of_file() if name not in TABLES]


def _field(name: str) -> str:
    return "slice_ns" if name == "slice_ms" else name


def _of_table(config: Config, table: str) -> dict[str, Any]:
    if table == "gpu":
        return {f"{one.name}.{key}": value for one in config.gpu for key, value in one.written().items()}
    settings = getattr(config, table)
    if isinstance(settings, Entitlement):
        return settings.written()
    names = {field: key for key, field in WALL_SIZES.items()} if table == "walls" else {}
    values = {names.get(field, field): value for field, value in dataclasses.asdict(settings).items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _for_people(table: str, name: str, value: object) -> object:
    is_size = name.endswith("_bytes") or name in SIZES or (table == "walls" and name in WALL_SIZES)
    if not is_size or not isinstance(value, int) or not value:
        return value
    return next((f"{value // unit}{letter}" for unit, letter in _UNITS if value % unit == 0), value)


def _kind(name: str, value: object) -> str:
    if name == "oversubscribe":
        return "factor"
    by_suffix = (kind for suffix, kind in _BY_SUFFIX.items() if name.endswith(suffix))
    return next(by_suffix, _BY_TYPE[type(value)])


def _meanings(declared: type) -> dict[str, str]:
    """The sentences below the fields of a class, each in one line."""
    (parsed,) = ast.parse(inspect.cleandoc(inspect.getsource(declared))).body
    assert isinstance(parsed, ast.ClassDef)
    found = {}
    for field, below in zip(parsed.body, parsed.body[1:], strict=False):
        is_told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_told:
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())  # type: ignore[attr-defined]
    return found
