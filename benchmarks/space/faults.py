"""What a fault of one program of a space costs the others: the other side of the space, a vGPU outside, and whoever comes next.

In each scene a critical program, a best-effort one and one outside of the space work. Then one of the two has a fault, or is ended. Told are
what the other side saw, the longest round of those that went on, and how long a new program of that vGPU took until it could compute, its
own start included.
"""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from backend_host.config import Config
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.guests.process import ProcessSession
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.space import live
from benchmarks.space.live import BEST_EFFORT, CRITICAL, LARGE, Program
from benchmarks.style import LESS

KIND = "space fault"
SPACE, TARGET = "faults", 2.0
WATCHDOG_S = 2
WORK_S = 1.0
"""Before the fault."""
AGAIN_LIMIT_S = 30.0
PROGRAMS = {"critical": "spmv", "best-effort": "md", "outside": "lbm"}
GOES_ON = "goes on"
ROLES = {CRITICAL: "critical", BEST_EFFORT: "best-effort"}

Act = Callable[[Config, int, Program], None]
"""What happens to the program of the guest of that number."""


@dataclass(frozen=True)
class Scene:
    """What happens to whom."""

    name: str
    victim: int
    act: Act

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.name}, {ROLES[self.victim]}"


def _tells(word: str) -> Act:
    return lambda config, victim, program: program.running.tell(word)


def _kills(config: Config, victim: int, program: Program) -> None:
    program.running.kill()


def _kills_worker(config: Config, victim: int, program: Program) -> None:
    [vgpu] = [each for each in live.status(config)["vgpus"] if each["name"] == f"{SPACE}-{victim}"]
    for client in vgpu["clients"]:
        os.kill(client["worker_pid"], signal.SIGKILL)


SCENES = (
    Scene("illegal address", BEST_EFFORT, _tells("fault")),
    Scene("illegal address", CRITICAL, _tells("fault")),
    Scene("program killed", BEST_EFFORT, _kills),
    Scene("program killed", CRITICAL, _kills),
    Scene("worker killed in a kernel", BEST_EFFORT, _kills_worker),
    Scene("endless kernel, watchdog of 2 s", BEST_EFFORT, _tells("hang")),
)


def _nr_records(options: argparse.Namespace) -> int:
    return len(SCENES)


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    watched = replace(settings, daemon={**settings.daemon, "watchdog_s": WATCHDOG_S})
    with reporter.tolerating("faults"), live.serving(watched) as config:
        for scene in SCENES:
            reporter.doing(scene.label)
            with reporter.tolerating(scene.label):
                yield {
                    "kind": KIND,
                    "scene": scene.name,
                    "victim": ROLES[scene.victim],
                    **_seen(config, scene, options),
                }


def _seen(config: Config, scene: Scene, options: argparse.Namespace) -> Record:
    large, pause = LARGE[options.device], ("--pause-us", f"{options.pause_us:g}")
    """Without pauses a critical program that may preempt all the time leaves others outside of its space nothing."""
    entitlements = (live.critical(TARGET, SPACE), live.best_effort(SPACE))
    with (
        live.members(config, SPACE, entitlements) as inside,
        live.members(config, "outside", ({},)) as outside,
        contextlib.ExitStack() as stack,
    ):

        def begun(session: ProcessSession, index: int, role: str, name: str) -> Program:
            program = Program(session, index, (role, name, *large, *(pause if role == "critical" else ())))
            stack.callback(program.running.stop)
            program.ready()
            return program

        programs = [begun(inside, index, role, PROGRAMS[role]) for index, role in ROLES.items()]
        apart = begun(outside, 0, "critical", PROGRAMS["outside"])
        for program in (*programs, apart):
            program.work()
        time.sleep(WORK_S)
        victim, neighbour = programs[scene.victim], programs[1 - scene.victim]
        for program in (neighbour, apart):
            program.look()
        begun_s = time.monotonic()
        scene.act(config, scene.victim, victim)
        again_s = _served_again(inside, scene.victim, begun_s)
        victim_said = _outcome(victim)["said"]
        return {
            "again_s": again_s,
            "victim_said": victim_said,
            "neighbour": _outcome(neighbour),
            "outside": _outcome(apart),
            "nr_faults": live.space_of(config, SPACE)["nr_faults"],
        }


def _served_again(session: ProcessSession, index: int, begun_s: float) -> float:
    """Seconds until a new program of that guest is ready."""
    while True:
        program = Program(session, index, ("critical", "nn"))
        try:
            program.ready()
            return round(time.monotonic() - begun_s, 3)
        except ProgramFailedError:
            if time.monotonic() - begun_s > AGAIN_LIMIT_S:
                raise
        finally:
            program.running.stop()


def _outcome(program: Program) -> dict[str, Any]:
    """What a program says that is told to end, and its longest round, where it made any."""
    try:
        worked = program.rest()
        program.end()
    except ProgramFailedError as error:
        return {"said": str(error), "longest_us": None}
    return {"said": GOES_ON, "longest_us": max(worked.times_us, default=None)}


def _told(outcome: dict[str, Any]) -> str:
    longest_us = outcome["longest_us"]
    return outcome["said"] if longest_us is None else f"{outcome['said']}, rounds of {longest_us / 1000:.1f} ms at most"


def _sheet(document: Document) -> Sheet | None:
    found = records(document, KIND)
    if not found:
        return None
    rows = tuple(
        (
            each["scene"],
            each["victim"],
            _told(each["neighbour"]),
            _told(each["outside"]),
            f"{each['again_s']:.1f}",
            "yes" if each["nr_faults"] else "no",
        )
        for each in found
    )
    columns = ("what", "whose", "the other side of the space", "a vGPU outside", "served again, s", "space begins anew")
    return Sheet("Faults in a space", columns, rows)


def _figures(document: Document) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in records(document, KIND):
        name = f"faults/{each['scene']}/{each['victim']}"
        found |= {
            f"{name}/served again, s": each["again_s"],
            f"{name}/the other side goes on": float(each["neighbour"]["said"] == GOES_ON),
            f"{name}/a vGPU outside goes on": float(each["outside"]["said"] == GOES_ON),
        }
    return found


def _draw(axes: Any, document: Document) -> str | None:
    found = records(document, KIND)
    if not found:
        return None
    labels = [f"{each['scene']},\n{each['victim']}" for each in found]
    axes.barh(range(len(found)), [each["again_s"] for each in found], 0.6)
    axes.set_yticks(range(len(found)), labels, fontsize="x-small")
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds until a new program is ready {LESS}")
    outside = sum(each["outside"]["said"] == GOES_ON for each in found)
    return f"In {outside} of {len(found)} scenes a vGPU outside of the space goes on"


PART = Part("faults", _nr_records, _measure, _sheet, _figures, _draw)
