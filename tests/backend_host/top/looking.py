"""Made-up looks for tests of `top`: a host whose vGPUs use the GPU evenly, and a daemon that tells of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual.app import App
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.top.app import Top
from backend_host.top.asking import Asker
from backend_host.top.figures import Figures, Looks
from tests.backend_host.told import status_of

SECOND_NS = 10**9
NAMES = ("vm0", "vm1", "vm2")


def status_at(second: int, names: Sequence[str] = NAMES) -> Message:
    """So many seconds after the first look. Of three vGPUs the first has 1 tenth of the GPU, the second 2, the third 3, and the second is
    entitled to 3. The first waits for nothing, the others 2, 4 ... ms for a turn. More than three have less of the GPU each."""
    parts = max(10, len(names) * (len(names) + 1) // 2)
    status = status_of()
    [vgpu], [gpu] = status["vgpus"], status["gpus"]
    status["uptime_ns"] = 1000 * SECOND_NS + second * SECOND_NS
    status["pid"] = 4711
    status["vgpus"] = [
        {
            **vgpu,
            "name": name,
            "weight": nr + 1,
            "used_ns": SECOND_NS + (nr + 1) * second * SECOND_NS // parts,
            "entitled_share": (nr + 1) / parts + (0.1 if nr == 1 else 0.0),
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
    """A daemon that answers at once. `fault` is what it answers instead, `refusal` what it says of other weights, `changes` and `remarks`
    what it says otherwise of itself and of each vGPU."""

    def __init__(self, second: int = 0, names: Sequence[str] = NAMES) -> None:
        self.second = second
        self.names = names
        self.fault: FairGVError | None = None
        self.refusal: FairGVError | None = None
        self.changes: dict[str, Any] = {}
        self.remarks: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.hand_overs: list[Message] = []

    def ask(self, operation: str, **arguments: object) -> Message:
        self.asked.append((operation, arguments))
        if self.fault is not None:
            raise self.fault
        match operation:
            case "status":
                self.second += 1
                status = status_at(self.second, self.names)
                for vgpu in status["vgpus"]:
                    vgpu.update(self.remarks)
                return {**status, **self.changes}
            case "grants":
                return {"sequence": len(self.hand_overs), "hand_overs": self.hand_overs}
            case _:
                if self.refusal is not None:
                    raise self.refusal
                return {"text": f"{arguments['name']}: weight {arguments['weight']}"}

    def end(self) -> None:
        self.asked.append(("end", {}))


def view_of(asker: Asker, looks: Looks, figures: Figures) -> Top:
    """It looks when it is told to, by the space bar."""
    return Top(asker, looks, figures, 3600.0)


Play = Callable[[Pilot[None], MadeUp], Awaitable[None]]


def played(
    play: Play, daemon: MadeUp, *, nr_looks: int = 6, names: Sequence[str] = NAMES, size: tuple[int, int] = (80, 24)
) -> Top:
    """The view as it was at the end of a play."""

    async def run() -> Top:
        app = view_of(daemon, *after(nr_looks, names))
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            await play(pilot, daemon)
        return app

    return asyncio.run(run())


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Keys, and all that comes of them. The pilot's own `press` waits twice more until the process is idle."""
    for key in keys:
        pilot.app.simulate_key(key)
        await _through(pilot.app)
        await settle(pilot)
        await pilot.app.animator.wait_until_complete()


async def settle(pilot: Pilot[None]) -> None:
    """Until all questions are answered, and what they brought has gone from each widget up to the view. An answer may ask again."""
    app = pilot.app
    while True:
        await app.workers.wait_for_complete()
        for node in (*app.screen.walk_children(), app.screen, app):
            await _through(node)
        await pilot.pause()
        if not any(worker.is_running for worker in app.workers):
            return


async def _through(node: MessagePump) -> None:
    """Until it has looked at all that it was told. One that goes meanwhile looks at nothing more."""
    is_through, has_run = asyncio.Event(), False
    if not node.call_later(is_through.set):
        return
    while not is_through.is_set() and (node.is_running or not has_run):
        has_run |= node.is_running
        await asyncio.sleep(0)


def lines_of(app: App[None]) -> list[str]:
    """The uppermost screen as text."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
