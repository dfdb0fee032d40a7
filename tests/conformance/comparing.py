"""What two runs of the cases printed, compared line by line, and the file of differences that are known."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASE_DEFINITION = re.compile(r"^(?:CASE|ALONE|BARE)\((\w+)\)", re.MULTILINE)
DIFFERENCES = HERE / "differences.toml"


def case_names(pattern: str) -> list[str]:
    """The cases that the sources of this pattern define, without building them."""
    sources = sorted((HERE / "cases").glob(pattern))
    return [name for source in sources for name in CASE_DEFINITION.findall(source.read_text())]


@dataclass(frozen=True)
class Known:
    """An entry of differences.toml."""

    case: str
    """A regular expression."""
    reason: str
    lines: tuple[str, ...] = ()
    """Regular expressions for labels; none: the case as a whole."""
    devices: tuple[str, ...] = ("soft", "cuda")
    may_agree: bool = False
    """Nobody promises that both sides say the same, nor that they do not."""

    def has(self, label: str) -> bool:
        return not self.lines or any(re.fullmatch(line, label) for line in self.lines)


def read_known(path: Path = DIFFERENCES) -> list[Known]:
    """All entries; TypeError for a word that an entry cannot have."""
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("difference", [])
    for entry in entries:
        entry.update({key: tuple(value) for key, value in entry.items() if isinstance(value, list)})
    return [Known(**entry) for entry in entries]


def labelled(lines: Iterable[str]) -> dict[str, str]:
    """Label to value; a label that comes again gets its number."""
    seen: Counter[str] = Counter()
    values = {}
    for line in lines:
        label, _, value = line.rpartition(": ") if ": " in line else (line, "", "")
        seen[label] += 1
        values[label if seen[label] == 1 else f"{label} #{seen[label]}"] = value
    return values


@dataclass
class Comparison:
    unexpected: list[str] = field(default_factory=list)
    """Lines that differ and may not."""
    vanished: list[str] = field(default_factory=list)
    """Known differences that are none any more."""


def compare(name: str, native: Iterable[str], guest: Iterable[str], known: Iterable[Known], device: str) -> Comparison:
    """Every line must be on both sides and the same, except for known differences, which must still be there.

    A call that crashes NVIDIA's driver is none that a program can rely on: whatever a guest gets is right, but a crash.
    """
    ours = [entry for entry in known if re.fullmatch(entry.case, name) and device in entry.devices]
    left, right = labelled(native), labelled(guest)
    if device == "cuda":
        crashing = {label for label, value in left.items() if value == "crashes"}
        left = {label: value for label, value in left.items() if label not in crashing}
        right = {label: value for label, value in right.items() if label not in crashing or value == "crashes"}
    differing = [label for label in dict.fromkeys([*left, *right]) if left.get(label) != right.get(label)]
    result = Comparison()
    for label in differing:
        if not any(entry.has(label) for entry in ours):
            result.unexpected.append(f"{label}\n  natively: {left.get(label)}\n  guest:    {right.get(label)}")
    for entry in ours:
        if entry.may_agree:
            continue
        for line in entry.lines or (".*",):
            if not any(re.fullmatch(line, label) for label in differing):
                result.vanished.append(f"{line} ({entry.reason})")
    return result


def summary(native: Mapping[str, list[str]], guest: Mapping[str, list[str]]) -> str:
    """How many cases and lines, and how many of them differ."""
    nr_lines = sum(len(labelled(lines)) for lines in native.values())
    nr_cases = sum(native[name] != guest.get(name) for name in native)
    return f"{len(native)} cases, {nr_lines} lines, {nr_cases} cases differ"
