"""C prototypes of driver calls, as the table spells them.

A strict parser for the little of C that the vendor's prototypes use: named parameters, pointers, const, no arrays and
no function types (those have typedefs). Anything else is a mistake in the table and is refused, so that nothing is
guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PROTOTYPE = re.compile(r"CUresult (?P<name>cu[A-Z]\w*)\((?P<parameters>[^()]*)\)")
_PARAMETER = re.compile(
    r"(?P<type>(?:const )?(?:unsigned |signed )?(?:long long|\w+)) (?P<stars>\**)(?P<name>[A-Za-z_]\w*)"
)
_KEYWORDS = {"int", "long", "short", "char", "float", "double"}


class PrototypeError(Exception):
    """The text is no prototype that this parser accepts."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: `const CUgraphNode **dependencies` is base "CUgraphNode", const, depth 2."""

    name: str
    base: str
    depth: int
    is_const: bool

    @property
    def is_pointer(self) -> bool:
        return self.depth > 0

    def declaration(self) -> str:
        return f"{'const ' if self.is_const else ''}{self.base} {'*' * self.depth}{self.name}"


@dataclass(frozen=True)
class Prototype:
    """A driver call's name and parameters; what it returns is always a CUresult."""

    name: str
    parameters: tuple[Parameter, ...]

    def parameter_list(self) -> str:
        return ", ".join(parameter.declaration() for parameter in self.parameters) or "void"

    def declaration(self, name: str | None = None) -> str:
        return f"CUresult {name or self.name}({self.parameter_list()})"

    def arguments(self) -> str:
        return ", ".join(parameter.name for parameter in self.parameters)


def parse(text: str) -> Prototype:
    """The prototype that text spells, or PrototypeError."""
    match = _PROTOTYPE.fullmatch(text)
    if match is None:
        raise PrototypeError(f"not a prototype of a driver call: {text!r}")
    inside = match["parameters"]
    parameters = [] if inside == "void" else [_parse_parameter(part.strip()) for part in inside.split(",")]
    names = [parameter.name for parameter in parameters]
    if len(set(names)) != len(names):
        raise PrototypeError(f"two parameters of one name: {text!r}")
    return Prototype(match["name"], tuple(parameters))


def _parse_parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None or match["name"] in _KEYWORDS:
        raise PrototypeError(f"not a parameter: {text!r}")
    base = match["type"]
    is_const = base.startswith("const ")
    return Parameter(match["name"], base.removeprefix("const "), len(match["stars"]), is_const)
