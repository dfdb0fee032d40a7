"""The table of driver calls, read from calls.toml and checked.

What is wrong in the table stops here, with the call, the parameter and the reason: a keyword that nobody knows would
otherwise be a promise that nobody keeps. calls.toml's own head explains each key.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cuda_api import layout, value
from cuda_api.c_types import HANDLES, STRUCTS, Field, enumerations, scalar_wire
from cuda_api.call import ADDRESS_LENDERS, LENDERS, NO_LENDER, Call
from cuda_api.prototype import Parameter, Prototype, PrototypeError, parse
from cuda_api.value import Value, Values, ValueTableError

CALLS_TOML = Path(__file__).parent / "calls.toml"
FIRST_INTERNAL_NUMBER = 0xF000
LAST_NUMBER = 0xFFFF

_WORDS = {
    "codec": ("generated", "hand", "guest", "alias"),
    "answer": ("local", "async", "sync"),
    "cost": ("none", "copy", "compute"),
    "order": ("free", "stream"),
    "waits": ("none", "stream", "event", "context"),
    "by_hand": ("guest",),
    "per_thread": ("_ptsz", "_ptds"),
}
_SYMBOL_KEYS = frozenset({"number", "family", "c", "since", "codec"})
_RECORD_KEYS = frozenset({"answer", "cost", "order", "waits"})
_TWIN_KEYS = frozenset({"per_thread", "per_thread_async"})
_REQUIRED = {
    "generated": _SYMBOL_KEYS | _RECORD_KEYS,
    "hand": _SYMBOL_KEYS | _RECORD_KEYS | {"wire"},
    "guest": _SYMBOL_KEYS | {"answer"},
    "alias": _SYMBOL_KEYS | {"of"},
    "internal": _RECORD_KEYS | {"number", "wire"},
}
_OPTIONAL = {
    "generated": _TWIN_KEYS
    | {"pointers", "destroys", "settles", "allowed", "hook", "before", "by_hand", "contextless", "unsafe"}
    | {"within", "doubtful", "lender"},
    "hand": _TWIN_KEYS | {"reply", "payload", "contextless", "lender"},
    "guest": _TWIN_KEYS | {"through", "lender"},
    "alias": frozenset[str](),
    "internal": frozenset({"reply", "payload", "contextless"}),
}
_KEY_TYPES: dict[str, type] = {
    "number": int,
    "since": int,
    "hook": bool,
    "before": bool,
    "unsafe": bool,
    "payload": bool,
    "contextless": bool,
    "pointers": dict,
    "allowed": dict,
    "within": dict,
    "doubtful": dict,
    "through": list,
}  # every other key is a string


class TableError(Exception):
    """The table says something that it must not; the text names call and parameter."""


@dataclass(frozen=True)
class Table:
    """All calls by number, internal records last."""

    calls: tuple[Call, ...]
    values: tuple[Value, ...]
    hash: int

    @cached_property
    def by_name(self) -> dict[str, Call]:
        return {call.name: call for call in self.calls}

    @property
    def symbols(self) -> tuple[Call, ...]:
        """The calls that the library exports, without their per-thread twins."""
        return tuple(call for call in self.calls if call.prototype is not None)

    @property
    def records(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.has_record)


def read(path: Path = CALLS_TOML) -> Table:
    """The table in the file, or TableError."""
    return from_text(path.read_text())


def from_text(text: str) -> Table:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"the table is no TOML: {error}") from error
    internal = tables.pop("internal", {})
    shared = tables.pop("values", {})
    try:
        values = value.read(shared)
    except ValueTableError as error:
        raise TableError(str(error)) from error
    enums = enumerations()
    calls = [_Reader(name, entry, enums, values, is_internal=False).read() for name, entry in tables.items()]
    calls += [_Reader(name, entry, enums, values, is_internal=True).read() for name, entry in internal.items()]
    calls.sort(key=lambda call: call.number)
    table = Table(tuple(calls), values.all, _hash(tables, internal, shared))
    for problem in _problems_together(table):
        raise TableError(problem)
    return table


def _hash(tables: dict[str, Any], internal: dict[str, Any], shared: dict[str, Any]) -> int:
    """What guest and host compare: everything but words for people, and values that are none of the guest's."""
    facts = {name: {k: v for k, v in entry.items() if k != "family"} for name, entry in tables.items()}
    text = json.dumps([facts, internal, value.facts(shared)], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


class _Reader:
    """One call's entry, on its way to a Call."""

    def __init__(self, name: str, entry: Any, enums: frozenset[str], values: Values, *, is_internal: bool) -> None:
        self.name = f"internal.{name}" if is_internal else name
        self.call_name = name
        self.entry: dict[str, Any] = entry if isinstance(entry, dict) else {}
        self.enums = enums
        self.values = values
        self.is_internal = is_internal

    def error(self, text: str, parameter: str = "") -> TableError:
        return TableError(f"{self.name}: {f'parameter {parameter}: ' if parameter else ''}{text}")

    def read(self) -> Call:
        codec = "internal" if self.is_internal else self.word("codec")
        self.check_keys(codec)
        first, last = (FIRST_INTERNAL_NUMBER, LAST_NUMBER) if self.is_internal else (1, FIRST_INTERNAL_NUMBER - 1)
        if not first <= self.entry["number"] <= last:
            raise self.error(f"number {self.entry['number']} is not in {first} .. {last}")
        prototype = None if self.is_internal else self.prototype()
        values: dict[str, Any] = {
            key: self.word(key) if key in _WORDS else said
            for key, said in self.entry.items()
            if key not in ("c", "wire", "reply", "pointers", "allowed", "doubtful", "within", "through", "codec")
        }
        values["through"] = tuple(self.entry.get("through", ()))
        values["rules"] = dict(self.entry.get("pointers", {}))
        for key in ("allowed", "doubtful"):
            values[key] = {name: self.ranges(name, text) for name, text in self.entry.get(key, {}).items()}
        values["within"] = {name: tuple(str(text).split()) for name, text in self.entry.get("within", {}).items()}
        if codec == "generated" and prototype is not None:
            values["request"], values["reply"] = self.generated_structs(prototype)
        elif codec in ("hand", "internal"):
            values["request"] = self.hand_struct("wire")
            values["reply"] = self.hand_struct("reply") if "reply" in self.entry else layout.EMPTY
        call = Call(name=self.call_name, codec=codec, prototype=prototype, **values)
        for problem in _problems_alone(call):
            raise self.error(problem)
        return call

    def check_keys(self, codec: str) -> None:
        keys = set(self.entry)
        for key in sorted(keys - _REQUIRED[codec] - _OPTIONAL[codec]):
            raise self.error(f"{key!r} means nothing for codec {codec!r}")
        for key in sorted(_REQUIRED[codec] - keys):
            raise self.error(f"{key!r} is missing")
        for key, said in self.entry.items():
            if type(said) is not _KEY_TYPES.get(key, str):
                raise self.error(f"{key} = {said!r} is not a {_KEY_TYPES.get(key, str).__name__}")

    def word(self, key: str) -> str:
        word = self.entry.get(key)
        if word not in _WORDS[key]:
            raise self.error(f"{key} = {word!r} is none of {', '.join(_WORDS[key])}")
        return str(word)

    def prototype(self) -> Prototype:
        try:
            prototype = parse(self.entry["c"])
        except PrototypeError as error:
            raise self.error(str(error)) from error
        if prototype.name != self.name:
            raise self.error(f"the prototype is that of {prototype.name}")
        return prototype

    def hand_struct(self, key: str) -> layout.Struct:
        try:
            return layout.parse(self.entry[key], self.values.structs, self.values.lengths)
        except layout.LayoutError as error:
            raise self.error(f"{key}: {error}") from error

    def ranges(self, parameter: str, text: Any) -> tuple[tuple[int, int], ...]:
        found = [re.fullmatch(r"(\d+)(?:\.\.(\d+))?", part) for part in str(text).split()]
        pairs = [(int(match[1]), int(match[2] or match[1])) for match in found if match]
        if not pairs or len(pairs) != len(found) or any(low > high for low, high in pairs):
            raise self.error(f"{text!r} is no list of values such as '0..3' or '1 3 8..10'", parameter)
        return tuple(pairs)

    def generated_structs(self, prototype: Prototype) -> tuple[layout.Struct, layout.Struct]:
        rules: dict[str, Any] = self.entry.get("pointers", {})
        for key in ("pointers", "allowed", "doubtful", "within"):
            for name in self.entry.get(key, {}):
                if name not in {parameter.name for parameter in prototype.parameters}:
                    raise self.error(f"{key} names a parameter that is not there", name)
        for parameter in prototype.parameters:
            is_flags = not parameter.is_pointer and scalar_wire(parameter.base, self.enums) == "uint32_t"
            for key in ("allowed", "doubtful"):
                if parameter.name in self.entry.get(key, {}) and not is_flags:
                    raise self.error(f"{key} is for enumerations and flags", parameter.name)
        request: list[Field] = []
        reply: list[Field] = []
        for parameter in prototype.parameters:
            rule = str(rules.get(parameter.name, ""))
            if parameter.is_pointer:
                (reply if rule in ("out", "out nullable") else request).append(
                    self.pointer_field(parameter, rule, prototype)
                )
            else:
                request.append(self.value_field(parameter, rule))
        return layout.lay_out(request), layout.lay_out(reply)

    def value_field(self, parameter: Parameter, rule: str) -> Field:
        wire = "uint64_t" if parameter.base in HANDLES else scalar_wire(parameter.base, self.enums)
        if wire is None:
            raise self.error(f"nobody knows how a {parameter.base} travels", parameter.name)
        if rule and not (rule == "nullable" and parameter.base in HANDLES):
            raise self.error(f"rule {rule!r} on something that is no pointer", parameter.name)
        return Field(parameter.name, wire)

    def pointer_field(self, parameter: Parameter, rule: str, prototype: Prototype) -> Field:
        if not rule:
            raise self.error("a pointer without a rule", parameter.name)
        kind, _, under = rule.partition(" under ")
        if kind not in ("in", "out", "out nullable", "new") or (under and kind != "new"):
            raise self.error(f"{rule!r} is no rule for a pointer", parameter.name)
        if parameter.depth != 1:
            raise self.error("a pointer to a pointer needs codec 'hand'", parameter.name)
        if parameter.is_const and kind != "in":
            raise self.error(f"rule {rule!r} on a pointer to const", parameter.name)
        if kind == "new":
            if parameter.base not in HANDLES:
                raise self.error(f"a {parameter.base} is no handle", parameter.name)
            if under and under not in {p.name for p in prototype.parameters if p.base in HANDLES and not p.is_pointer}:
                raise self.error(f"{under!r} is no handle parameter", parameter.name)
            return Field(parameter.name, "uint64_t")
        if parameter.base in STRUCTS:
            return Field(parameter.name, "uint64_t", STRUCTS[parameter.base] // 8)
        wire = scalar_wire(parameter.base, self.enums)
        if wire is None:
            raise self.error(f"nobody knows how a {parameter.base} travels", parameter.name)
        return Field(parameter.name, wire)


def _problems_alone(call: Call) -> Iterator[str]:
    """What one call's words contradict among themselves."""
    by_name = {parameter.name: parameter for parameter in call.parameters}
    if call.has_record:
        if call.answer == "local":
            yield "answer 'local' makes no record: that is codec 'guest'"
        if call.answer == "async" and call.reply.size_bytes:
            yield "answer 'async', and yet there is a reply"
        if call.cost != "none" and call.order != "stream":
            yield "what costs the GPU needs order 'stream'"
        for word, base in (("stream", "CUstream"), ("event", "CUevent")):
            if call.waits == word and call.handle_offset(base) is None:
                yield f"waits = {word!r} without a {word}"
    for key, name in (("destroys", call.destroys), *(("settles", name) for name in call.settles.split())):
        wanted = HANDLES if key == "destroys" else ("CUdeviceptr",)
        if name and (name not in by_name or by_name[name].is_pointer or by_name[name].base not in wanted):
            yield f"{key}: parameter {name}: not a {'handle' if key == 'destroys' else 'device address'}"
    lender = by_name.get(call.lender)
    if call.lender not in ("", NO_LENDER) and (
        lender is None or (lender.base, lender.depth) not in (*LENDERS, *ADDRESS_LENDERS)
    ):
        yield f"lender: parameter {call.lender}: neither a handle of something in a context nor an address"
    if call.by_hand == "guest" and (
        call.hook or call.before or call.settles or call.within or call.doubtful or call.unsafe
    ):
        yield "hook, before, settles, within, doubtful and unsafe are for generated stubs"
    if (call.within or call.doubtful) and call.answer != "async":
        yield "within and doubtful are for calls that nobody waits for otherwise"
    for name, words in call.within.items():
        sizes = [by_name[word].base for word in words[1:] if word in by_name and not by_name[word].is_pointer]
        if by_name[name].base != "CUdeviceptr" or words[:1] not in (("1",), ("2",), ("4",), ("8",)):
            yield f"within: parameter {name}: not a device address and the bytes of an element"
        elif words == ("1",) or len(words) not in (1, 2, 4) or sizes != ["size_t"] * (len(words) - 1):
            yield f"within: parameter {name}: not a width, or a width, a height and a pitch"
    bases = {parameter.base for parameter in call.parameters}
    if call.per_thread == "_ptsz" and not bases & {
        "CUstream",
        "CUlaunchConfig",
        "CUDA_GRAPH_INSTANTIATE_PARAMS",
    }:
        yield "per_thread '_ptsz' without a stream"
    if call.per_thread_async and call.per_thread != "_ptds":
        yield "per_thread_async is for per_thread '_ptds'"
    if call.per_thread == "_ptds" and not call.per_thread_async and call.codec != "guest":
        yield "per_thread '_ptds' without per_thread_async is for codec 'guest'"


def _problems_together(table: Table) -> Iterator[str]:
    """What calls contradict in each other."""
    names: set[str] = set()
    numbers: dict[int, str] = {}
    versions: dict[tuple[str, int], str] = {}
    for call in table.calls:
        if call.name in names:
            yield f"{call.name}: is there twice"
        names.add(call.name)
        if call.number in numbers:
            yield f"{call.name}: number {call.number} is that of {numbers[call.number]}"
        numbers[call.number] = call.name
        if call.prototype is not None:
            if (call.base_name, call.since) in versions:
                yield f"{call.name}: since {call.since} is that of {versions[call.base_name, call.since]}"
            versions[call.base_name, call.since] = call.name
    for call in table.calls:
        for name in call.through:
            if name not in table.by_name or not table.by_name[name].has_record:
                yield f"{call.name}: through: {name} has no record"
        if call.of:
            target = table.by_name.get(call.of)
            if target is None or target.codec == "alias" or _types(target) != _types(call):
                yield f"{call.name}: of: {call.of} is no call with the same parameters"
        if call.per_thread_async:
            target = table.by_name.get(call.per_thread_async)
            if target is None or _types(target) != [*_types(call), ("CUstream", 0)]:
                yield f"{call.name}: per_thread_async: {call.per_thread_async} has other parameters and a stream"


def _types(call: Call) -> list[tuple[str, int]]:
    return [(parameter.base, parameter.depth) for parameter in call.parameters]
