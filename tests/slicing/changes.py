"""
Persistent kernels whose split changes at random while they run: they must leave what the kernel leaves, and have on each multiprocessor as many
blocks as the split says.

One stream has the kernel, another one writes the split word and reads what the kernel counts, a third one brings blocks back: more blocks of
the same variant by the same counter. When none is left on the device and numbers are, the kernel is launched again.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from cuda_api.generated.values import SPLIT_K_SHIFT, PersistentState
from tests.slicing.three_ways import Kernels, Launch, Out, PackedDevice, persistent_descriptor

NO_LIMIT = 1 << 63
FEW_EACH = 3
"""Blocks for each multiprocessor where kernels do not overlap: as on softgpu, which runs them on a few threads."""
FEW_CHANGES = 8
"""A kernel that ends within so many is launched with more blocks the next time."""
MOST_BLOCKS = 1 << 19
LATE_S = 120.0
"""So long after a change nothing is waited for any more. A failure, and no bound on anything."""


@dataclass(frozen=True)
class Changed:
    """`nr_changes`: those that blocks followed while the kernel went on. `nr_gone`: blocks that had to go, and went. `nr_begun_again`: launches
    because all blocks had given way. `nr_brought_back`: launches beside those that run."""

    kernel: str
    nr_changes: int = 0
    nr_gone: int = 0
    nr_runs: int = 0
    nr_begun_again: int = 0
    nr_brought_back: int = 0
    wrong: tuple[str, ...] = ()


def most_on(multiprocessor: int, most_each: int, split: int) -> int:
    """How many blocks the split leaves there, of as many as fit."""
    first, fewer = split & ((1 << SPLIT_K_SHIFT) - 1), split >> SPLIT_K_SHIFT
    return max(0, most_each - (fewer if multiprocessor < first else 0))


class Split:
    """The split word on a device, and what blocks of one kernel count."""

    def __init__(self, device: PackedDevice, state: int, most_each: int) -> None:
        self.most_each = most_each
        self._device, self._state = device, state
        self._nr_multiprocessors = device.nr_multiprocessors
        self._side = device.stream()
        self.address = device.allocate(4)
        self._word = 0

    def close(self) -> None:
        self._device.close_stream(self._side)
        self._device.free(self.address)

    def set(self, word: int) -> None:
        self._word = word
        self._device.write_beside(self._side, self.address, struct.pack("<I", word))

    def begin(self, counter: int) -> None:
        """While nothing of the kernel runs."""
        self._device.write_beside(self._side, self._state, struct.pack("<2Q", counter, NO_LIMIT))

    def counter(self) -> int:
        [counter] = struct.unpack("<Q", self._device.read_beside(self._side, self._state, 8))
        return int(counter)

    def live(self) -> Sequence[int]:
        """For each multiprocessor, and behind them for what has no number there."""
        nr_bytes = PersistentState.SIZE - PersistentState.LIVE
        content = self._device.read_beside(self._side, self._state + PersistentState.LIVE, nr_bytes)
        return struct.unpack(f"<{nr_bytes // 4}I", content)

    def most(self) -> Sequence[int]:
        """The same, as the word stands."""
        every = PersistentState.SIZE - PersistentState.LIVE
        each = [most_on(number, self.most_each, self._word) for number in range(self._nr_multiprocessors)]
        return [*each, *[0] * (every // 4 - len(each))]

    def random_word(self, chance: random.Random) -> int:
        first = chance.choice((0, self._nr_multiprocessors, chance.randrange(self._nr_multiprocessors + 1), 1))
        return first | chance.randrange(1, self.most_each + 2) << SPLIT_K_SHIFT


class Changing:
    """One kernel, launched again and again until its split has changed often enough."""

    def __init__(
        self, device: PackedDevice, kernels: Kernels, name: str, launch: Launch, *, moves: bool = False
    ) -> None:
        """`moves`: its blocks find themselves elsewhere all the time, so only what is left at the end is known."""
        self._device, self._kernels, self._name, self._launch, self._moves = device, kernels, name, launch, moves
        self._function, state = kernels.persistent(name, moves=moves)
        nr_threads = launch.block[0] * launch.block[1] * launch.block[2]
        resident = device.nr_resident_each(self._function, nr_threads, launch.dynamic_shared_bytes)
        self._overlaps = device.overlaps_kernels
        self._split = Split(device, state, resident if self._overlaps else min(resident, FEW_EACH))
        self._streams = (device.stream(), device.stream())
        self._seen = Changed(f"{name}, moving" if moves else name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._split.close()
        for stream in self._streams:
            self._device.close_stream(stream)

    def run(self, nr_changes: int, seed: int) -> Changed:
        """Changes it at least so often. Stops at what goes wrong."""
        chance = random.Random(seed)
        wanted = self._kernels.whole(self._name, self._launch)
        while self._seen.nr_changes < nr_changes and not self._seen.wrong:
            before = self._seen.nr_changes
            with self._kernels.out(self._launch) as out:
                self._device.wait(None)
                self._run_once(out, chance)
                if not self._seen.wrong and not out.holds(wanted):
                    self._note("what it left differs")
            self._count(nr_runs=1)
            if self._seen.nr_changes - before < FEW_CHANGES and self._launch.nr_blocks < MOST_BLOCKS:
                width, height, depth = self._launch.grid
                self._launch = replace(self._launch, grid=(2 * width, height, depth))
                wanted = self._kernels.whole(self._name, self._launch)
            elif self._seen.nr_changes == before:
                self._note("no change was followed")
        return self._seen

    def _run_once(self, out: Out, chance: random.Random) -> None:
        self._split.set(0)
        self._split.begin(0)
        self._submit(out, 0, self._device.nr_multiprocessors * self._split.most_each)
        before: Sequence[int] = self._split.live()
        while not self._seen.wrong:
            if self._is_idle():
                if any(self._split.live()):
                    self._note(f"at its end {sum(self._split.live())} blocks are counted")
                if self._split.counter() >= self._launch.nr_blocks:
                    return
                self._split.set(0)
                self._submit(out, 0, self._device.nr_multiprocessors * self._split.most_each)
                self._count(nr_begun_again=1)
                before = [0] * len(before)
            self._split.set(self._split.random_word(chance))
            before = self._settled(out, before, chance)

    def _settled(self, out: Out, before: Sequence[int], chance: random.Random) -> Sequence[int]:
        """Waits until blocks are where they may be, and says where they are. Whoever could stay is still there."""
        most = self._split.most()
        late = time.monotonic() + LATE_S
        kept: Sequence[int]
        while True:
            was_idle = self._is_idle()
            live = self._split.live()
            if was_idle or self._split.counter() >= self._launch.nr_blocks:
                return live
            if self._moves:
                kept = live
                break
            if list(live) == list(most) if self._overlaps else all(map(int.__le__, live, most)):
                kept = tuple(map(min, before, most))
                break
            if time.monotonic() > late:
                self._note(f"{live[:40]} blocks and not {most[:40]}")
                return live
            if self._overlaps:
                self._bring_back(out, sum(most) - sum(live))
        if any(map(int.__lt__, live, kept)):
            self._note(f"of {before[:40]} blocks {live[:40]} stayed where {most[:40]} may be")
        self._count(nr_changes=1, nr_gone=max(0, sum(before) - sum(kept)))
        if not self._overlaps and chance.random() < 1 / FEW_CHANGES:
            self._bring_back(out, sum(most) - sum(live))
        return live

    def _bring_back(self, out: Out, nr_blocks: int) -> None:
        if nr_blocks > 0 and self._device.is_idle(self._streams[1]):
            self._submit(out, 1, nr_blocks)
            self._count(nr_brought_back=1)

    def _submit(self, out: Out, stream: int, nr_blocks: int) -> None:
        descriptor = persistent_descriptor(self._launch, self._split.most_each, self._split.address)
        parameters = self._kernels.arguments(out, self._launch, descriptor)
        shared_bytes = self._launch.dynamic_shared_bytes
        grid = (nr_blocks, 1, 1)
        self._device.launch_packed(
            self._function, grid, self._launch.block, shared_bytes, parameters, self._streams[stream]
        )

    def _is_idle(self) -> bool:
        return all(map(self._device.is_idle, self._streams))

    def _count(self, **more: int) -> None:
        self._seen = replace(self._seen, **{name: getattr(self._seen, name) + by for name, by in more.items()})

    def _note(self, text: str) -> None:
        wrong = (*self._seen.wrong, f"{self._launch}, change {self._seen.nr_changes}: {text}")
        self._seen = replace(self._seen, wrong=wrong)
