"""Images of a program whose kernels may need variants: the PTX is kept as it came, which is compressed as a rule.

It is unpacked and parsed when a kernel of it needs a variant (variants.py); a program without large launches never imports the parser.
Everything here comes from a guest: what cannot be kept or understood means that its kernels run whole.
"""

from __future__ import annotations

from cuda_api.fatbin import ELF_MAGIC, Buffer, FatbinError, without_machine_code
from cuda_api.generated.values import Whole

MAX_IMAGE_BYTES = 64 << 20
MAX_KEPT_BYTES = 512 << 20
"""Of one worker: a guest that loads images for ever must not fill the host's memory with what it sent."""

CONTAINER = b"\x50\xed\x55\xba"

Owner = tuple[int, int]
"""Kind and number of the module or library that an image became."""


class Images:
    """What is kept of the images of one worker."""

    def __init__(self) -> None:
        self._kept: dict[Owner, bytes | Whole] = {}
        self._kept_bytes = 0

    def keep(self, owner: Owner, image: Buffer | None) -> None:
        """Of a new module or library, its PTX; None for one that was linked from several files."""
        self.forget(owner)
        if image is None:
            self._kept[owner] = Whole.SEPARATE_COMPILATION
        elif len(image) > MAX_IMAGE_BYTES:
            self._kept[owner] = Whole.TOO_LARGE
        else:
            self._kept[owner] = kept = self._worth_keeping(image)
            self._kept_bytes += len(kept) if isinstance(kept, bytes) else 0

    def _worth_keeping(self, image: Buffer) -> bytes | Whole:
        if image[:4] == ELF_MAGIC:
            return Whole.NO_PTX
        try:
            kept = without_machine_code(image) if image[:4] == CONTAINER else bytes(image)
        except FatbinError:
            return Whole.NOT_UNDERSTOOD
        return kept if self._kept_bytes + len(kept) <= MAX_KEPT_BYTES else Whole.TOO_LARGE

    def forget(self, owner: Owner) -> None:
        """It was unloaded, or its number is given again."""
        gone = self._kept.pop(owner, None)
        if isinstance(gone, bytes):
            self._kept_bytes -= len(gone)

    def of(self, owner: Owner) -> bytes | Whole:
        """What was kept, or why its kernels have no variants."""
        return self._kept.get(owner, Whole.NO_PTX)
