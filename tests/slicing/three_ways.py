"""
One kernel run whole, in boxes and persistently on a device, and what each left in memory.

The device is any libcuda.so.1, in this process, with nothing of FairGV between: what is tested is the PTX.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cuda_api.generated.values import PERSISTENT_STATE_NAME
from cuda_api.ptx import format_module, parse
from cuda_api.ptx.syntax import Module as Tree
from cuda_api.ptx.variants import RunsWholeError, Whole, persist_kernel, slice_kernel, used_by
from tests.softgpu.arithmetic.cuda import CudaError, Device, Module

Shape = tuple[int, int, int]
NR_SUM_WORDS = 64
NR_IN_WORDS = 4096
_BUFFER, _BUFFER_SIZE = 1, 2
_PADDING = bytes(4)
"""Between the arguments and a variant's descriptor."""
_NOT_FOUND, _NOT_READY = "CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_NOT_READY"
_NON_BLOCKING = 1
_LIBC = ctypes.CDLL(None)
_CLOCK_KHZ, _MULTIPROCESSOR_COUNT, _CONCURRENT_KERNELS = 13, 16, 31


@dataclass(frozen=True)
class Launch:
    """`number` is the kernel's third argument."""

    grid: Shape
    block: Shape
    number: int
    dynamic_shared_bytes: int = 0

    @property
    def nr_blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def nr_out_words(self) -> int:
        return self.nr_blocks * self.block[0] * self.block[1] * self.block[2] + NR_SUM_WORDS


class PackedDevice(Device):
    """A device whose launches take parameters as they lie in memory."""

    def __init__(self, library: str) -> None:
        super().__init__(library)
        self._pinned, self._nr_pinned_bytes = ctypes.c_void_p(), 0

    def launch_packed(
        self,
        function: ctypes.c_void_p,
        grid: Shape,
        block: Shape,
        dynamic_shared_bytes: int,
        parameters: bytes,
        stream: ctypes.c_void_p | None = None,
    ) -> None:
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        size = ctypes.c_size_t(len(parameters))
        extra = (ctypes.c_void_p * 5)(_BUFFER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), None)
        self.call("cuLaunchKernel", function, *grid, *block, dynamic_shared_bytes, stream, None, extra)

    def variable(self, module: Module, name: str) -> tuple[int, int]:
        """Address and size of a module's variable."""
        address, nr_bytes = ctypes.c_uint64(), ctypes.c_size_t()
        found = (ctypes.byref(address), ctypes.byref(nr_bytes))
        self.call("cuModuleGetGlobal_v2", *found, module._handle, name.encode())
        return address.value, nr_bytes.value

    def write(self, address: int, content: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))

    def read(self, address: int, nr_bytes: int) -> bytes:
        """Waits for all kernels before."""
        buffer = ctypes.create_string_buffer(nr_bytes)
        self.call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(nr_bytes))
        return buffer.raw

    def holds(self, address: int, content: bytes) -> bool:
        """Whether the memory there is this; waits for all kernels before. By way of pinned memory, as 200 MB are compared hundreds of times and
        fresh memory is slow."""
        nr_bytes = len(content)
        if nr_bytes > self._nr_pinned_bytes:
            if self._pinned:
                self.call("cuMemFreeHost", self._pinned)
            self.call("cuMemHostAlloc", ctypes.byref(self._pinned), ctypes.c_size_t(nr_bytes), 0)
            self._nr_pinned_bytes = nr_bytes
        self.call("cuMemcpyDtoH_v2", self._pinned, ctypes.c_uint64(address), ctypes.c_size_t(nr_bytes))
        return not _LIBC.memcmp(self._pinned, content, ctypes.c_size_t(nr_bytes))

    def stream(self) -> ctypes.c_void_p:
        """A stream that goes on beside all others."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return stream

    def close_stream(self, stream: ctypes.c_void_p) -> None:
        self.call("cuStreamDestroy_v2", stream)

    def wait(self, stream: ctypes.c_void_p | None) -> None:
        self.call("cuStreamSynchronize", stream)

    def is_idle(self, stream: ctypes.c_void_p) -> bool:
        try:
            self.call("cuStreamQuery", stream)
        except CudaError as error:
            if error.error != _NOT_READY:
                raise
            return False
        return True

    def write_beside(self, stream: ctypes.c_void_p, address: int, content: bytes) -> None:
        """Kernels in other streams go on meanwhile."""
        size = ctypes.c_size_t(len(content))
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), content, size, stream)
        self.wait(stream)

    def read_beside(self, stream: ctypes.c_void_p, address: int, nr_bytes: int) -> bytes:
        """The same."""
        buffer = ctypes.create_string_buffer(nr_bytes)
        self.call("cuMemcpyDtoHAsync_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(nr_bytes), stream)
        self.wait(stream)
        return buffer.raw

    @property
    def nr_multiprocessors(self) -> int:
        return self._attribute(_MULTIPROCESSOR_COUNT)

    @property
    def clock_khz(self) -> int:
        return self._attribute(_CLOCK_KHZ)

    @property
    def overlaps_kernels(self) -> bool:
        """Whether kernels of different streams may run at once."""
        return bool(self._attribute(_CONCURRENT_KERNELS))

    def nr_resident_each(self, function: ctypes.c_void_p, nr_threads: int, dynamic_shared_bytes: int) -> int:
        """Blocks that fit a multiprocessor."""
        nr = ctypes.c_int()
        size = ctypes.c_size_t(dynamic_shared_bytes)
        self.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(nr), function, nr_threads, size)
        return nr.value


class Kernels:
    """A module of kernels (out, in, number) on a device, and its variants as they are asked for."""

    def __init__(self, device: PackedDevice, text: str) -> None:
        self._device = device
        self._tree = parse(text)
        self._whole = device.load(text)
        self._loaded: list[Module] = [self._whole]
        self._variants: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._modules: dict[tuple[str, str], Module] = {}
        self._in = device.allocate(4 * NR_IN_WORDS)
        values = struct.pack(f"<{NR_IN_WORDS}I", *(i * 2654435761 % 1000003 for i in range(NR_IN_WORDS)))
        device.write(self._in, values)

    def close(self) -> None:
        for module in self._loaded:
            module.close()
        self._device.free(self._in)

    def whole(self, name: str, launch: Launch) -> bytes:
        """What the kernel leaves in `out`."""
        function = self._whole.function(name)
        with self.out(launch) as out:
            self._launch(function, launch, launch.grid, self._arguments(out, launch))
            return out.content()

    def in_boxes(self, name: str, launch: Launch, seed: int) -> bytes:
        """The same by way of the sliced variant, the grid cut at random."""
        function = self._variant(name, slice_kernel)
        with self.out(launch) as out:
            for first, size in boxes(launch.grid, random.Random(seed)):
                descriptor = struct.pack("<6I", *first, *launch.grid)
                self._launch(function, launch, size, self.arguments(out, launch, descriptor))
            return out.content()

    def persistently(self, name: str, launch: Launch, nr_blocks: int, nr_stops: int) -> bytes:
        """The same by way of the persistent variant, with that many blocks, stopped and resumed that many times."""
        function, state = self.persistent(name)
        with self.out(launch) as out:
            counter = 0
            for stop in range(nr_stops + 1):
                limit = (1 << 63) if stop == nr_stops else counter + launch.nr_blocks // (nr_stops + 1)
                self._device.write(state, struct.pack("<2Q", counter, limit))
                descriptor = persistent_descriptor(launch)
                self._launch(function, launch, (nr_blocks, 1, 1), self.arguments(out, launch, descriptor))
                [counter] = struct.unpack("<Q", self._device.read(state, 8))
                counter = min(counter, launch.nr_blocks)
            return out.content()

    def set_constant(self, name: str, content: bytes) -> None:
        """In the original; variants are to see it."""
        self._device.write(self._whole_global(name)[0], content)

    def out(self, launch: Launch) -> Out:
        """Zeroed memory for a launch's results."""
        return Out(self._device, launch)

    def persistent(self, name: str, *, moves: bool = False) -> tuple[ctypes.c_void_p, int]:
        """The persistent variant, and where its state lies; `moves`: one whose blocks find themselves on another multiprocessor each time they
        look. Raises RunsWholeError."""
        make = persist_restlessly if moves else persist_kernel
        return self._variant(name, make), self._state(name, make)

    def arguments(self, out: Out, launch: Launch, descriptor: bytes) -> bytes:
        """What a variant is launched with."""
        return self._arguments(out, launch) + _PADDING + descriptor

    def _arguments(self, out: Out, launch: Launch) -> bytes:
        """To the byte: NVIDIA's driver refuses to launch with more."""
        return struct.pack("<QQI", out.address, self._in, launch.number)

    def _variant(self, name: str, make: Callable[[Tree, str, Mapping[str, int]], Tree]) -> ctypes.c_void_p:
        key = (name, make.__name__)
        if key not in self._variants:
            module = self._device.load(format_module(make(self._tree, name, self._addresses(name))))
            self._loaded.append(module)
            for constant in used_by(self._tree, name).constants:
                address, nr_bytes = self._whole_global(constant)
                self._device.write(self._device.variable(module, constant)[0], self._device.read(address, nr_bytes))
            self._variants[key] = module.function(name)
            self._modules[key] = module
        return self._variants[key]

    def _state(self, name: str, make: Callable[..., Tree]) -> int:
        """Where a persistent variant counts."""
        return self._device.variable(self._modules[(name, make.__name__)], PERSISTENT_STATE_NAME)[0]

    def _whole_global(self, name: str) -> tuple[int, int]:
        return self._device.variable(self._whole, name)

    def _addresses(self, name: str) -> dict[str, int]:
        used = used_by(self._tree, name)
        found = {}
        for variable in used.globals:
            try:
                found[variable] = self._whole_global(variable)[0]
            except CudaError as error:
                if error.error != _NOT_FOUND:
                    raise
                if variable not in used.literals:
                    raise RunsWholeError(Whole.HIDDEN_VARIABLE, variable) from error
        return found

    def _launch(self, function: ctypes.c_void_p, launch: Launch, grid: Shape, parameters: bytes) -> None:
        self._device.launch_packed(function, grid, launch.block, launch.dynamic_shared_bytes, parameters)


def persist_restlessly(tree: Tree, name: str, addresses: Mapping[str, int]) -> Tree:
    """As persist_kernel, but the clock says on which of 8 multiprocessors a block is. The last has a number that is not counted."""
    text = format_module(persist_kernel(tree, name, addresses))
    looks = re.compile(r"mov\.u32 (%\w+), %smid;")
    assert len(looks.findall(text)) == 1
    return parse(looks.sub(r"mov.u32 \1, %clock; shr.u32 \1, \1, 6; and.b32 \1, \1, 7; mul.lo.u32 \1, \1, 147;", text))


class Out:
    """Zeroed memory for a launch's results."""

    def __init__(self, device: PackedDevice, launch: Launch) -> None:
        self._device, self._nr_bytes = device, 4 * launch.nr_out_words
        self.address = device.allocate(self._nr_bytes)

    def __enter__(self) -> Out:
        return self

    def __exit__(self, *_: object) -> None:
        self._device.free(self.address)

    def content(self) -> bytes:
        return self._device.read(self.address, self._nr_bytes)

    def holds(self, content: bytes) -> bool:
        """Of the same size."""
        return self._device.holds(self.address, content)


def persistent_descriptor(launch: Launch, most_each: int = 0, split_address: int = 0) -> bytes:
    """What the persistent variant is told: struct fgv_persistent_descriptor."""
    return struct.pack("<Q4IQ", launch.nr_blocks, *launch.grid, most_each, split_address)


def boxes(grid: Shape, chance: random.Random) -> Iterator[tuple[Shape, Shape]]:
    """The grid cut into boxes (first, size) in each direction, in the order of the blocks."""
    cuts = [_cuts(length, chance) for length in grid]
    for z, depth in cuts[2]:
        for y, height in cuts[1]:
            for x, width in cuts[0]:
                yield (x, y, z), (width, height, depth)


def _cuts(length: int, chance: random.Random) -> Sequence[tuple[int, int]]:
    inner = sorted(chance.sample(range(1, length), min(length - 1, chance.randrange(3))))
    ends = [0, *inner, length]
    return [(start, end - start) for start, end in itertools.pairwise(ends)]
