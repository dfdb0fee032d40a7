"""What the table says about one call, ready for the generators: facts only, all of them checked by cuda_api.table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cuda_api.c_types import HANDLES
from cuda_api.layout import EMPTY, Struct
from cuda_api.prototype import Parameter, Prototype

#: Base and depth of parameters that tell of a context, the one that decides first.
LENDERS = (
    ("CUlaunchConfig", 1),
    ("CUstream", 0),
    ("CUevent", 0),
    ("CUmodule", 0),
    ("CUfunction", 0),
    ("CUarray", 0),
    ("CUmipmappedArray", 0),
)
#: Those that do so where the table names them.
ADDRESS_LENDERS = (("CUdeviceptr", 0), ("void", 1))
NO_LENDER = "none"


@dataclass(frozen=True)
class Call:
    """One exported symbol, or one internal record (prototype None). The fields are the keys of calls.toml."""

    name: str
    number: int
    codec: str
    family: str = "internal"
    prototype: Prototype | None = None
    since: int = 0
    per_thread: str = ""
    per_thread_async: str = ""
    of: str = ""
    by_hand: str = ""
    answer: str = ""
    cost: str = "none"
    order: str = "free"
    waits: str = "none"
    contextless: bool = False
    lender: str = ""
    rules: Mapping[str, str] = field(default_factory=dict)
    destroys: str = ""
    settles: str = ""
    allowed: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    within: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubtful: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    unsafe: bool = False
    hook: bool = False
    before: bool = False
    through: tuple[str, ...] = ()
    request: Struct = EMPTY
    reply: Struct = EMPTY
    payload: bool = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.prototype.parameters if self.prototype else ()

    @property
    def base_name(self) -> str:
        """The name that programs give to cuGetProcAddress: without _v2 and the like."""
        stem, _, version = self.name.rpartition("_v")
        return stem if stem and version.isdigit() else self.name

    @property
    def has_record(self) -> bool:
        """Whether requests of this number travel."""
        return self.codec in ("generated", "hand", "internal")

    @property
    def has_stub(self) -> bool:
        return self.codec == "generated" and self.by_hand != "guest"

    @property
    def has_handler(self) -> bool:
        return self.codec == "generated"

    def lending(self) -> Parameter | None:
        """The parameter whose context a thread without a current one has for this call; None: it has none."""
        if self.lender:
            return next((p for p in self.parameters if p.name == self.lender), None)
        candidates = () if self.contextless else LENDERS
        return next((p for base in candidates for p in self.parameters if (p.base, p.depth) == base), None)

    def rule(self, parameter: Parameter) -> str:
        """in, out, out nullable, new or nullable; "" for a plain value."""
        return self.rules.get(parameter.name, "").partition(" under ")[0]

    def parent(self, parameter: Parameter) -> Parameter | None:
        """The handle that a new one dies with."""
        under = self.rules.get(parameter.name, "").partition(" under ")[2]
        return next((other for other in self.parameters if other.name == under), None)

    def handle_offset(self, base: str) -> int | None:
        """Where in the request the first stream or event stands (base: CUstream or CUevent), by type or by name."""
        if self.codec == "generated":
            names = [p.name for p in self.parameters if p.base == base and not p.is_pointer]
        else:
            names = [f.name for _, f in self.request.fields if f.name == HANDLES[base].lower()]
        return self.request.offset(names[0]) if names else None
