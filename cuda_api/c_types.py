"""What the generators know of C types: how each travels on the wire.

Integers keep their width, size_t and addresses are 64 bits, an enumeration is a uint32_t, a handle is the guest's
64-bit number of it. Names of enumerations are read from our own headers, so that there is no second list of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

INCLUDE = Path(__file__).parent / "include" / "cuda_api"

SCALARS: dict[str, str] = {
    "int": "int32_t",
    "unsigned int": "uint32_t",
    "unsigned short": "uint16_t",
    "unsigned char": "uint8_t",
    "unsigned long long": "uint64_t",
    "cuuint32_t": "uint32_t",
    "cuuint64_t": "uint64_t",
    "size_t": "uint64_t",
    "float": "float",
    "CUdevice": "int32_t",
    "CUdeviceptr": "uint64_t",
}

HANDLES: dict[str, str] = {
    "CUcontext": "CONTEXT",
    "CUstream": "STREAM",
    "CUevent": "EVENT",
    "CUmodule": "MODULE",
    "CUfunction": "FUNCTION",
    "CUlibrary": "LIBRARY",
    "CUkernel": "KERNEL",
    "CUlinkState": "LINK",
    "CUarray": "ARRAY",
    "CUmipmappedArray": "MIPMAPPED_ARRAY",
    "CUmemoryPool": "MEMORY_POOL",
    "CUmemGenericAllocationHandle": "ALLOCATION",
    "CUgraph": "GRAPH",
    "CUgraphNode": "GRAPH_NODE",
    "CUgraphExec": "GRAPH_EXEC",
}

#: Handles that the host numbers, in its answers: the driver makes graphs and nodes that no call of the guest's named.
#: The guest has no table of them, so the host alone says which are good.
HOST_NUMBERED = frozenset({"CUgraph", "CUgraphNode"})

#: Structs that travel as they are: no pointer of the program's in them. Name -> bytes, all aligned to 8.
STRUCTS: dict[str, int] = {"CUstreamAttrValue": 64, "CUlaunchAttributeValue": 64, "CUkernelNodeAttrValue": 64}

WIRE_BYTES: dict[str, int] = {
    "uint8_t": 1,
    "uint16_t": 2,
    "uint32_t": 4,
    "int32_t": 4,
    "float": 4,
    "uint64_t": 8,
    "int64_t": 8,
}


@dataclass(frozen=True)
class Field:
    """A member of a wire struct; count 0 is a single value, otherwise an array. A struct of the table has `inner_bytes`."""

    name: str
    wire: str
    count: int = 0
    inner_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return (self.inner_bytes or WIRE_BYTES[self.wire]) * (self.count or 1)

    @property
    def align_bytes(self) -> int:
        return 8 if self.inner_bytes else WIRE_BYTES[self.wire]

    def declaration(self) -> str:
        kind = f"struct fgv_{self.wire}" if self.inner_bytes else self.wire
        return f"{kind} {self.name}{f'[{self.count}]' if self.count else ''};"


def enumerations() -> frozenset[str]:
    """The names of all enumerations in our headers."""
    texts = [(INCLUDE / name).read_text() for name in ("enums.h", "device_attributes.h", "results.h")]
    aliases = {"CUstreamAttrID", "CUkernelNodeAttrID"}
    return frozenset(re.findall(r"^} (CU\w+);", "\n".join(texts), re.MULTILINE)) | aliases


def scalar_wire(base: str, enums: frozenset[str]) -> str | None:
    """The wire type of a value of C type `base`, None when it is no plain value."""
    return SCALARS.get(base) or ("uint32_t" if base in enums else None)
