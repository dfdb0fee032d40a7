"""What the page is told: events while somebody looks at it, and a document with the last hour, which reports are made of, too.

Shares are of the time between two looks, so they add up to what the Gpu was used. The second's are for the table, the point's for the charts.

Wrong when: work takes longer than a second. It is charged as it ends, all at once, so that a share may be above 1.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend_host.glance import Glance
from backend_host.statistics import DaemonStatistics, VGpuStatistics
from backend_host.web.history import History, Sample

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class _Sums:
    """Of a vGPU or a Gpu, all since it came."""

    used_ns: int = 0
    wait_ns: int = 0
    nr_waits: int = 0


@dataclass(frozen=True)
class _Look:
    """What was seen when."""

    at_ns: int
    sums: Mapping[str, _Sums]

    def passed_ns(self, at_ns: int) -> int:
        return at_ns - self.at_ns

    def since(self, key: str, now: _Sums) -> _Sums:
        """What came to its sums. Who was not there, or is another one of that name, began with none."""
        then = self.sums.get(key, _Sums())
        if now.used_ns < then.used_ns or now.wait_ns < then.wait_ns:
            return now
        return _Sums(now.used_ns - then.used_ns, now.wait_ns - then.wait_ns, now.nr_waits - then.nr_waits)


class Teller:
    """Looks when it is asked to, and remembers. `point` and `second` are one thread's; `document` may be asked for by others meanwhile."""

    def __init__(
        self,
        statistics: Callable[[], DaemonStatistics],
        glance: Callable[[], Glance],
        origin: Mapping[str, str],
        now_ns: Callable[[], int] = time.monotonic_ns,
        started_ms: float | None = None,
    ) -> None:
        """`origin`: of which host and version it tells. `started_ms`: what the time is, in ms since 1970; later ones are told by `now_ns`, so
        that nobody who sets the clock makes the last hour go backwards."""
        self._statistics = statistics
        self._glance = glance
        self._origin = origin
        self._now_ns = now_ns
        self._history = History()
        self._offset_ms = (time.time() * 1e3 if started_ms is None else started_ms) - now_ns() / 1e6
        self._last_point: _Look | None = None
        self._last_second: _Look | None = None
        self._lock = threading.Lock()
        self._second: dict[str, Any] = {}
        self._kept = (0, b"")

    def point(self) -> bytes:
        """Notes a point of the history; the event that tells it."""
        at_ns, seen = self._now_ns(), self._statistics()
        before = self._last_point
        self._last_point = look = _Look(at_ns, dict(_sums(seen)))
        gpus = [
            Sample(
                str(gpu.number),
                {
                    "number": gpu.number,
                    "name": gpu.name,
                    "policy": gpu.policy,
                    "memory_bytes": gpu.memory_bytes,
                    "is_ready": gpu.is_ready,
                    "failed": gpu.failed,
                    "is_drained": gpu.is_drained,
                    "demand": _rounded(gpu.demand),
                    "min_max_ratio": gpu.min_max_ratio,
                },
                {**_share(look, before, str(gpu.number)), "memory": gpu.used_bytes},
            )
            for gpu in seen.gpus
        ]
        vgpus = [
            Sample(
                _key(vgpu.gpu_number, vgpu.name),
                {
                    "name": vgpu.name,
                    "gpu": vgpu.gpu_number,
                    "nr_programs": len(vgpu.clients),
                    "class": vgpu.vgpu_class,
                    "space": vgpu.space,
                    "demand": _rounded(vgpu.demand),
                },
                {
                    **_share(look, before, _sum_key(vgpu.name)),
                    **_wait(look, before, _sum_key(vgpu.name)),
                    "entitled": vgpu.entitled_share,
                    "memory": vgpu.memory_bytes,
                },
            )
            for vgpu in seen.vgpus
        ]
        at_ms = self._ms(at_ns)
        number = self._history.note(at_ms, gpus, vgpus)
        return encoded({"number": number, "at": at_ms, "gpus": list(map(vars, gpus)), "vgpus": list(map(vars, vgpus))})

    def second(self) -> bytes:
        """The event that tells how things are now."""
        at_ns, seen = self._now_ns(), self._glance()
        before = self._last_second
        sums = {_sum_key(vgpu.name): _Sums(vgpu.used_ns) for vgpu in seen.vgpus}
        sums.update((str(number), _Sums(used_ns)) for number, used_ns in seen.used_ns.items())
        self._last_second = look = _Look(at_ns, sums)
        vgpus = [
            {
                "key": _key(vgpu.gpu_number, vgpu.name),
                "name": vgpu.name,
                "gpu": vgpu.gpu_number,
                "kind": vgpu.kind,
                "weight": vgpu.weight,
                "quota_bytes": vgpu.quota_bytes,
                "used_s": round(vgpu.used_ns / _NS_PER_S, 3),
                "memory_bytes": vgpu.memory_bytes,
                "entitled": _rounded(vgpu.entitled_share),
                **_share(look, before, _sum_key(vgpu.name)),
            }
            for vgpu in seen.vgpus
        ]
        gpus = [{"number": number, **_share(look, before, str(number))} for number in seen.used_ns]
        sentences = {"waits_for": seen.waits_for, "troubles": list(seen.troubles)}
        second = {"at": self._ms(at_ns), **sentences, "gpus": gpus, "vgpus": vgpus}
        with self._lock:
            self._second = second
        return encoded(second)

    def document(self) -> dict[str, Any]:
        """Everything: where it is from, the last hour, and the last second that was told."""
        with self._lock:
            return {**self._origin, "history": self._history.told(), "second": self._second}

    def encoded_document(self) -> bytes:
        """The same as JSON. It is made once for each point: a few ms with 100 vGPUs, however many ask."""
        number, kept = self._kept
        if not kept or number != self._history.number:
            number = self._history.number
            self._kept = (number, kept := encoded(self.document()))
        return kept

    def _ms(self, at_ns: int) -> float:
        return round(at_ns / 1e6 + self._offset_ms)


def encoded(value: object) -> bytes:
    """As JSON in one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _key(gpu_number: int, name: str) -> str:
    """Of what is shown of a vGPU on this Gpu."""
    return f"{gpu_number}/{name}"


def _sum_key(name: str) -> str:
    """Of a vGPU's sums, which go with it to another Gpu."""
    return f"vgpu/{name}"


def _sums(seen: DaemonStatistics) -> Iterator[tuple[str, _Sums]]:
    for gpu in seen.gpus:
        yield str(gpu.number), _Sums(gpu.used_ns)
    for vgpu in seen.vgpus:
        yield _sum_key(vgpu.name), _Sums(vgpu.used_ns, vgpu.totals.wait_ns, _nr_waits(vgpu))


def _nr_waits(vgpu: VGpuStatistics) -> int:
    return sum(vgpu.totals.nr_waits.values())


def _share(look: _Look, before: _Look | None, key: str) -> dict[str, float | None]:
    """The part of the time since `before` that it used."""
    if before is None or (passed_ns := before.passed_ns(look.at_ns)) <= 0:
        return {"share": None}
    return {"share": _rounded(before.since(key, look.sums[key]).used_ns / passed_ns)}


def _wait(look: _Look, before: _Look | None, key: str) -> dict[str, float | None]:
    """How long each turn that came since `before` was waited for, in ms; a turn that came at once is none."""
    since = before.since(key, look.sums[key]) if before is not None else _Sums()
    return {"wait": round(since.wait_ns / since.nr_waits / 1e6, 3) if since.nr_waits else None}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
