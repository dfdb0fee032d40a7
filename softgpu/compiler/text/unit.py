"""What functions share that are lowered into one LLVM module."""

from __future__ import annotations

from cuda_api.record import field, mutable_record
from softgpu.compiler.base.layout import GlobalImage, Stack
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.text.helpers import HELPERS


@mutable_record
class Unit:
    """Where the names of the PTX module are, and from `declarations` on what the functions' code asks for."""

    flats: dict[str, FlatFunction]
    function_tokens: dict[str, int]
    globals: GlobalImage
    common_shared: Stack
    dynamic_shared: set[str]
    declarations: dict[str, str] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    uses_function_table: bool = False

    def declare(self, name: str, result: str, arguments: tuple[str, ...]) -> None:
        if name not in self.declarations and name not in self.helpers:
            self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def use_helper(self, name: str) -> str:
        if name not in self.helpers:
            helper = HELPERS[name]
            self.helpers[name] = helper.text
            for needed in helper.needs:
                self.use_helper(needed)
            for declaration in helper.declarations:
                self.declarations.setdefault(declaration.split("@")[1].split("(")[0], declaration)
        return name
