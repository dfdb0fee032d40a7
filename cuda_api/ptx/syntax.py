"""
The syntax tree of a PTX module.

Plain data: frozen, hashable, compared by what was written and not by where it was written (`line` takes no part in comparisons). Names stay
strings; who they belong to is for the reader of the tree to find out, by PTX's scoping rules. Integers are kept as Python integers of any
sign, floating-point literals as their bits, because that is what a program means by them.
"""

from __future__ import annotations

from cuda_api.record import field, record


@record
class Name:
    """A register, variable, function, label or special register (`component` is the x of %tid.x)."""

    text: str
    component: str = ""


@record
class Integer:
    value: int


@record
class Float:
    """`bits` of an IEEE number of `width` 32 or 64 bits. A decimal literal has 64."""

    bits: int
    width: int


@record
class Not:
    """!p, where a predicate is read inverted."""

    operand: Name


@record
class Negated:
    """-r, which old video instructions allow."""

    operand: Name


@record
class Vector:
    elements: tuple[Operand, ...]


@record
class Pair:
    """p|q: two destinations; `_` is a Name of its own."""

    first: Operand
    second: Operand


@record
class Address:
    """[base+offset]; the base of an absolute address is an Integer."""

    base: Name | Integer
    offset: int = 0


@record
class Offset:
    """symbol+offset outside of brackets, generic(symbol)+offset, or mask(symbol)+offset in an initialiser."""

    symbol: Name
    offset: int = 0
    is_generic: bool = False
    mask: int | None = None


@record
class Bracket:
    """Several operands in brackets, as texture and tensor-map instructions write them: [tex, {x, y}]."""

    elements: tuple[Operand, ...]


@record
class Arguments:
    """(a, b) of a call."""

    elements: tuple[Operand, ...]


Operand = Name | Integer | Float | Not | Negated | Vector | Pair | Address | Offset | Bracket | Arguments
Initialiser = Integer | Float | Name | Offset | tuple["Initialiser", ...]


@record
class Guard:
    predicate: str
    is_negated: bool = False


@record
class Instruction:
    """`modifiers` are the dotted parts after the opcode, in order and without the dot."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    line: int = field(default=0, compare=False)

    @property
    def spelling(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@record
class Label:
    name: str


@record
class Variable:
    """
    A declaration in some state space ('reg', 'param', 'local', 'shared', 'const', 'global', 'tex').

    `dimensions` are element counts, 0 for an open one; `range_count` is the N of `%r<N>`; `vector` is 1, 2 or 4; `alignment` 0 is natural.
    `attributes` are the words of .attribute(...) and of .ptr, as written.
    """

    space: str
    type: str
    name: str
    vector: int = 1
    alignment: int = 0
    dimensions: tuple[int, ...] = ()
    range_count: int | None = None
    initialiser: Initialiser | None = None
    linkage: str = ""
    attributes: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


@record
class Prototype:
    """.callprototype"""

    name: str
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    attributes: tuple[str, ...] = ()


@record
class Targets:
    """.branchtargets or .calltargets (`kind`)"""

    name: str
    kind: str
    targets: tuple[str, ...]


@record
class Pragma:
    values: tuple[str, ...]


@record
class Block:
    statements: tuple[Statement, ...]


Statement = Instruction | Label | Variable | Prototype | Targets | Pragma | Block


@record
class Tuning:
    """.maxntid 256, 1, 1 and its like, between a function's head and its body."""

    name: str
    values: tuple[int, ...] = ()


@record
class Function:
    """`body` is None for a declaration."""

    is_entry: bool
    name: str
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    linkage: str = ""
    tuning: tuple[Tuning | Pragma, ...] = ()
    body: Block | None = None
    attributes: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


@record
class Alias:
    name: str
    target: str


@record
class Module:
    version: tuple[int, int]
    targets: tuple[str, ...]
    address_size: int
    items: tuple[Function | Variable | Alias | Pragma, ...]

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(item for item in self.items if isinstance(item, Variable))
