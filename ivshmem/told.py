"""What the daemon tells a guest of its own vGPU, in the first page of the region: told.h has the reasons."""

from dataclasses import dataclass
from typing import Any

from ivshmem import _ivshmem
from ivshmem.region import Region

ffi: Any = _ivshmem.ffi
lib: Any = _ivshmem.lib

_NOT_ACTIVE: int = lib.FGV_TOLD_NOT_ACTIVE
_MAX_32, _MAX_64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Told:
    """Fields as in told.h; parts are thousandths of the GPU, `entitled_permille` is None where the vGPU is not active."""

    weight: int
    quota_bytes: int
    request_permille: int
    limit_permille: int
    entitled_permille: int | None
    used_permille: int
    used_ns: int
    wait_ns: int
    nr_waits: int
    memory_bytes: int


def write_told(region: Region, number: int, told: Told) -> None:
    """The `number`th time. What does not fit a field is told as the most that it can hold: workers, who count, are not trusted."""
    values = ffi.new("struct fgv_told_values *")
    for name, value in vars(told).items():
        most = _MAX_32 if name == "weight" or name.endswith("_permille") else _MAX_64
        setattr(values, name, _NOT_ACTIVE if value is None else min(max(0, value), most))
    lib.fgv_told_write(region.c_region, number & (_MAX_32 >> 1), values)


def read_told(region: Region) -> Told | None:
    """As a guest reads it; None: nothing was told."""
    values = ffi.new("struct fgv_told_values *")
    if not lib.fgv_told_read(region.c_region, values):
        return None
    found = {name: int(getattr(values, name)) for name in Told.__dataclass_fields__}
    entitled: int | None = found.pop("entitled_permille")
    return Told(**found, entitled_permille=None if entitled == _NOT_ACTIVE else entitled)
