"""Made-up looks for tests of `top`: a host whose vGPUs use the GPU evenly, and a daemon that tells of them."""

from collections.abc import Sequence
from typing import Any

from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.top.asking import Asker
from backend_host.top.figures import Figures, Looks
from tests.backend_host.told import status_of

SECOND_NS = 10**9
NAMES = ("vm0", "vm1", "vm2")


def status_at(second: int, names: Sequence[str] = NAMES) -> Message:
    """So many seconds after the first look. Each vGPU has a tenth of the GPU more than the one before, beginning with 1/10; the
    second has less than it is entitled to; the first waits for nothing, the others 2, 4 ... ms for a turn."""
    status = status_of()
    [vgpu], [gpu] = status["vgpus"], status["gpus"]
    status["uptime_ns"] = 1000 * SECOND_NS + second * SECOND_NS
    status["pid"] = 4711
    status["vgpus"] = [
        {
            **vgpu,
            "name": name,
            "weight": nr + 1,
            "used_ns": SECOND_NS + (nr + 1) * second * SECOND_NS // 10,
            "entitled_share": (nr + 1) / 10 + (0.1 if nr == 1 else 0.0),
            "quota_bytes": nr << 30,
            "memory_bytes": (len(names) - nr) << 20,
            "totals": {
                **vgpu["totals"],
                "wait_ns": 20_000_000 * nr * second,
                "nr_waits": {"10000000": 10 * second} if nr else {},
            },
        }
        for nr, name in enumerate(names)
    ]
    gpu.update(vgpus=list(names), used_ns=4 * SECOND_NS + 6 * second * SECOND_NS // 10, min_max_ratio=0.5)
    return status


def after(nr_looks: int, names: Sequence[str] = NAMES) -> tuple[Looks, Figures]:
    """So many looks, a second apart."""
    looks = Looks()
    return looks, [looks.add(status_at(second, names)) for second in range(nr_looks)][-1]


class MadeUp(Asker):
    """A daemon that answers at once. `fault` is what it answers instead; `refusal` what it says of other weights."""

    def __init__(self, second: int = 0, names: Sequence[str] = NAMES) -> None:
        self.second = second
        self.names = names
        self.fault: FairGVError | None = None
        self.refusal: FairGVError | None = None
        self.changes: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.hand_overs: list[Message] = []

    def ask(self, operation: str, **arguments: object) -> Message:
        self.asked.append((operation, arguments))
        if self.fault is not None:
            raise self.fault
        match operation:
            case "status":
                self.second += 1
                return {**status_at(self.second, self.names), **self.changes}
            case "grants":
                return {"sequence": len(self.hand_overs), "hand_overs": self.hand_overs}
            case _:
                if self.refusal is not None:
                    raise self.refusal
                return {"text": f"{arguments['name']}: weight {arguments['weight']}"}

    def end(self) -> None:
        self.asked.append(("end", {}))
