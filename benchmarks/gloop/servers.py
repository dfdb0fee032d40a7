"""Servers of matrix products that want a part of the GPU each, beside a throttle of low weight, or beside tpacf (Figures 13 and 14).

A server's load runs on the host alone, and sends its messages so far apart in the mean that answers take a fifth of the GPU, by what a server
by callbacks was charged for one. Servers are those by callbacks and those that poll. Busy: what the daemon charged all of them, over the time.
"""

import argparse
import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.gloop.build import LOAD, build
from benchmarks.gloop.ports import GLOOP, PLAIN, port
from benchmarks.guests import Session, Setting, open_session
from benchmarks.guests.process import ProcessRunning
from benchmarks.guests.session import Running, left_s
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.stretch import END_LIMIT_S, START_LIMIT_S
from benchmarks.style import MORE
from benchmarks.systems import OURS
from benchmarks.workloads import Workload, parse_report, throughput

KIND = "gloop servers"
CALIBRATION_MESSAGES = 20
BUSY_PART = 0.2
LEAST_MESSAGES = 10
"""Of a load in a stretch, in the mean: where answers take long, as on softgpu, stretches are longer. The chance that none comes is 5e-5."""
SERVER_WEIGHT, THROTTLE_WEIGHT = 8, 1
LEAD_S = 1.0
TPACF, THROTTLE = "tpacf", "throttle"


@dataclass(frozen=True)
class Scene:
    """So many servers in one way, and others beside them."""

    way: str
    nr_servers: int
    others: tuple[str, ...]

    @property
    def label(self) -> str:
        """For people."""
        named = f"{len(self.others)} {self.others[0]}" if self.others else "nothing"
        return f"{self.nr_servers} servers, {self.way}, beside {named}"

    @property
    def weights(self) -> tuple[int, ...]:
        """Servers first."""
        lower = THROTTLE_WEIGHT if THROTTLE in self.others else SERVER_WEIGHT
        return (*(SERVER_WEIGHT,) * self.nr_servers, *(lower,) * len(self.others))


def _scenes(device: str) -> list[Scene]:
    if device == "soft":
        return [Scene(GLOOP, 1, ()), Scene(GLOOP, 1, (THROTTLE,))]
    return [
        *(Scene(way, 1, ()) for way in (GLOOP, PLAIN)),
        *(Scene(way, nr, (THROTTLE,)) for way in (GLOOP, PLAIN) for nr in (1, 2, 3)),
        *(Scene(way, 1, (TPACF,) * nr) for way in (GLOOP, PLAIN) for nr in (1, 2, 3)),
    ]


def free_port() -> int:
    """One that nobody listens at. Somebody may before it is used: then the server says so."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _start_server(session: Session, index: int, way: str, stack: contextlib.ExitStack) -> tuple[Running, int]:
    number = free_port()
    server = session.start(index, build("matrix"), ["--way", way, "--port", str(number), "--connections", "1"])
    stack.callback(server.stop)
    if (line := server.read_line(time.monotonic() + START_LIMIT_S)) != f"listening {number}":
        raise ProgramFailedError(f"matrix said: {line}")
    return server, number


def _load(number: int, *words: str) -> ProcessRunning:
    return ProcessRunning([str(build(LOAD)), "matrix", "--port", str(number), *words], os.environ, LOAD)


def _message_us(settings: Setting) -> float:
    """The GPU time that a server by callbacks, alone, is charged for an answer."""
    with open_session(OURS, settings) as session, contextlib.ExitStack() as stack:
        server, number = _start_server(session, 0, GLOOP, stack)
        before = session.accounts()[0].used_ns
        load = _load(number, "--requests", str(CALIBRATION_MESSAGES), "--quit")
        stack.callback(load.stop)
        load.finish(END_LIMIT_S).checked(LOAD)
        server.finish(END_LIMIT_S).checked("matrix")
        return (session.accounts()[0].used_ns - before) / CALIBRATION_MESSAGES / 1000


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    reporter.doing("a server alone")
    message_us = 0.0
    with reporter.tolerating("a server alone"):
        message_us = _message_us(settings)
    for scene in _scenes(options.device) if message_us else []:
        reporter.doing(scene.label)
        with reporter.tolerating(scene.label):
            found = _run(scene, options, settings, message_us / BUSY_PART)
            yield {
                "kind": KIND,
                "way": scene.way,
                "nr_servers": scene.nr_servers,
                "others": list(scene.others),
                "message_us": message_us,
                **found,
            }


def _run(scene: Scene, options: argparse.Namespace, settings: Setting, period_us: float) -> dict[str, Any]:
    """All begin, then one stretch is told to the loads and to the others; then servers are ended by their loads."""
    with open_session(OURS, settings, scene.weights) as session, contextlib.ExitStack() as stack:
        servers: list[Running] = []
        waiting: list[Running] = []
        for index in range(scene.nr_servers):
            server, number = _start_server(session, index, scene.way, stack)
            servers.append(server)
            load = _load(number, "--period-us", f"{period_us:g}", "--together", "--quit")
            stack.callback(load.stop)
            waiting.append(load)
        others: list[Workload] = [port(name, GLOOP, options.device) for name in scene.others]
        for index, workload in enumerate(others, scene.nr_servers):
            other = session.start(index, workload.path(), [*workload.arguments, "--together"])
            stack.callback(other.stop)
            waiting.append(other)
        seconds = max(options.seconds, LEAST_MESSAGES * period_us / 1e6)
        return _in_stretch(session, scene, servers, waiting, seconds)


def _in_stretch(
    session: Session, scene: Scene, servers: Sequence[Running], waiting: Sequence[Running], seconds: float
) -> dict[str, Any]:
    deadline_s = time.monotonic() + START_LIMIT_S
    for each in waiting:
        if (line := each.read_line(deadline_s)) != "ready":
            raise ProgramFailedError(f"a program beside servers said: {line}")
    begin_s = time.monotonic() + LEAD_S
    for each in waiting:
        each.tell(f"{left_s(begin_s):.6f} {seconds:.6f} 0")
    time.sleep(left_s(begin_s))
    before = session.accounts()
    time.sleep(left_s(begin_s + seconds))
    after = session.accounts()
    time.sleep(LEAD_S / 2)  # some may have begun later than they were told to
    for each in waiting:
        each.tell("end")
    reports = [parse_report(each.finish(END_LIMIT_S).checked("a program beside servers")) for each in waiting]
    ended = [parse_report(server.finish(END_LIMIT_S).checked("matrix")) for server in servers]
    used = [(one.used_ns - other.used_ns) / 1e9 / seconds for one, other in zip(after, before, strict=True)]
    nr = scene.nr_servers
    kept = ("requests", "request_us", "request_p50_us", "request_p99_us")
    return {
        "servers": [
            {
                "part": used[index],
                "kernels": ended[index]["kernels"] / ended[index]["served"],
                **{key: reports[index][key] for key in kept},
            }
            for index in range(nr)
        ],
        "beside": [{"part": used[index], "throughput": throughput(reports[index])} for index in range(nr, len(used))],
        "busy": sum(used),
    }


def _alone(document: Document, way: str) -> list[Record]:
    return [record for record in records(document, KIND) if record["way"] == way and not record["others"]]


def _worst(record: Record, key: str) -> float:
    return float(max(server[key] for server in record["servers"]))


def _sheet(document: Document) -> Sheet | None:
    rows = []
    for record in records(document, KIND):
        scene = Scene(record["way"], record["nr_servers"], tuple(record["others"]))
        beside = f"{len(scene.others)} {scene.others[0]}" if scene.others else "nothing"
        parts = " ".join(f"{server['part']:.2f}" for server in record["servers"])
        figures = (f"{_worst(record, key):.0f}" for key in ("request_p50_us", "request_p99_us"))
        kernels = f"{_worst(record, 'kernels'):.1f}" if "kernels" in record["servers"][0] else "-"
        rows.append((scene.way, str(scene.nr_servers), beside, parts, *figures, kernels, f"{record['busy']:.3f}"))
    columns = ("servers", "how many", "beside", "part of each", "us, median", "99 %", "kernels an answer", "busy")
    notes = (f"Loads want {100 * BUSY_PART:.0f} % of the GPU for each server. Times are of the slowest server.",)
    return Sheet("Servers beside others", columns, tuple(rows), notes) if rows else None


def _figures(document: Document) -> dict[str, float]:
    found = {}
    for record in records(document, KIND):
        if not record["others"]:
            continue
        label = f"servers/{record['way']}/{record['nr_servers']} beside {len(record['others'])} {record['others'][0]}"
        found[f"{label}/busy"] = record["busy"]
        found[f"{label}/least part"] = min(server["part"] for server in record["servers"])
        for alone in _alone(document, record["way"])[:1]:
            found[f"{label}/p99 over alone"] = _worst(record, "request_p99_us") / _worst(alone, "request_p99_us")
    return found


def _draw(axes: Any, document: Document) -> str | None:
    found = [record for record in records(document, KIND) if record["way"] == GLOOP and record["others"]]
    if not found:
        return None
    bottom = [0.0] * len(found)
    for number in range(max(record["nr_servers"] for record in found)):
        parts = [record["servers"][number]["part"] if number < record["nr_servers"] else 0.0 for record in found]
        axes.bar(range(len(found)), parts, 0.5, bottom=bottom, label=f"server {number + 1}")
        bottom = [one + other for one, other in zip(bottom, parts, strict=True)]
    axes.bar(
        range(len(found)),
        [record["busy"] - one for record, one in zip(found, bottom, strict=True)],
        0.5,
        bottom=bottom,
        label="others",
    )
    axes.set_xticks(range(len(found)), [f"{len(record['others'])} {record['others'][0]}" for record in found])
    axes.set_ylabel(f"part of the GPU\n{MORE}")
    axes.legend()
    return f"Beside servers by callbacks the GPU is busy for at least {min(record['busy'] for record in found):.2f} of the time"


PART = Part("servers", lambda options: len(_scenes(options.device)), _measure, _sheet, _figures, _draw)
