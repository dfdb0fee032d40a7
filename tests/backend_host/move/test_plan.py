"""What a move takes, and all that may be in its way, with numbers."""

from dataclasses import replace
from typing import Any

import pytest

from backend_host.device.readings import Keeps, WorkerReading, WorkerState
from backend_host.errors import RefusedError
from backend_host.generated.counters import WorkerCounters
from backend_host.move.plan import PAUSE_S, NoPlanError, Plan, Side, Traveller, make_plan
from scheduler.placement import Candidate, Wish

GIB = 1 << 30
ORIGIN = Side(Candidate(0, 1.0, 1), "H100", "9.0", 80 * GIB, "elastic", takes_requests=True, left_bytes=0)
TARGET = replace(
    ORIGIN, candidate=Candidate(1, 0.0, 0, memory_left=80 * GIB), left_bytes=80 * GIB, allocatable_left_bytes=None
)


COUNTERS: dict[str, Any] = {**dict.fromkeys(WorkerCounters.__dataclass_fields__, 0), "whole": {}, "nr_waits": {}}


def program(linear_bytes: int = 0, more_bytes: int = 0, keeps: Keeps = Keeps.NOT, name: str = "train") -> WorkerReading:
    counted = {**COUNTERS, "linear_bytes": linear_bytes, "memory_bytes": linear_bytes + more_bytes}
    return WorkerReading(
        **counted,
        slot=3,
        state=WorkerState.SERVING,
        pid=7,
        vgpu=0,
        client=0,
        is_user=False,
        is_waiting=False,
        phase="idle",
        stalled_since_ns=0,
        program=name,
        keeps=keeps,
    )


def web(*programs: WorkerReading, quota: int = 0, request: float = 0.0) -> Traveller:
    return Traveller("web", Wish(quota, request), programs)


def reasons(traveller: Traveller, origin: Side = ORIGIN, target: Side = TARGET) -> tuple[str, ...]:
    with pytest.raises(NoPlanError) as refused:
        make_plan(traveller, origin, target)
    assert str(refused.value) == f"web cannot move to GPU {target.number}: {'; '.join(refused.value.reasons)}"
    return refused.value.reasons


def with_candidate(side: Side, **known: Any) -> Side:
    return replace(side, candidate=replace(side.candidate, **known))


def test_memory_makes_pause_and_time_ahead() -> None:
    plan = make_plan(web(program(6 * GIB, GIB), program(2 * GIB, GIB)), ORIGIN, TARGET)
    assert plan == Plan("web", 0, 1, "checkpoint", 2, 8 * GIB, plan.seconds, plan.pause_s)
    assert plan.seconds == pytest.approx(2.81)
    assert plan.pause_s == pytest.approx(1.21)
    assert make_plan(web(program()), ORIGIN, TARGET).pause_s == PAUSE_S, "contexts alone"


def test_without_programs_nothing_is_checkpointed() -> None:
    """Nor does it need a mover."""
    plan = make_plan(web(), replace(ORIGIN, no_mover="no"), replace(TARGET, no_mover=None))
    assert plan == Plan("web", 0, 1, "checkpoint", 0, 0, 0.0, 0.0)


@pytest.mark.parametrize("mover", ["auto", "checkpoint"])
def test_movers_that_there_are(mover: str) -> None:
    assert make_plan(web(program()), ORIGIN, TARGET, mover).mover == "checkpoint"


def test_a_mover_that_there_is_not() -> None:
    with pytest.raises(RefusedError, match=r"^no mover is called 'replay'; there are auto, checkpoint$"):
        make_plan(web(), ORIGIN, TARGET, "replay")


def test_where_it_is_already() -> None:
    assert reasons(web(), ORIGIN, ORIGIN) == ("it is there already",)


def test_a_target_that_takes_nobody() -> None:
    drained = with_candidate(TARGET, out="drained (until fairgv-host undrain 1)")
    assert reasons(web(), target=drained) == ("GPU 1 is drained (until fairgv-host undrain 1)",)
    failed = with_candidate(TARGET, out="out, as it has failed: Xid 79")
    assert reasons(web(), target=failed) == ("GPU 1 is out, as it has failed: Xid 79",)


def test_an_origin_that_has_failed() -> None:
    failed = replace(with_candidate(ORIGIN, out="out, as it has failed: Xid 79"), failed="Xid 79")
    assert reasons(web(), failed) == ("GPU 0 has failed, and gives nothing back: Xid 79",)
    assert make_plan(web(), with_candidate(ORIGIN, out="drained"), TARGET), "one that is drained gives"


def test_what_a_new_vgpu_would_lack_there() -> None:
    full = with_candidate(TARGET, memory_left=GIB, request_left=5.0, places_left=0)
    assert reasons(web(quota=2 * GIB, request=10.0), target=full) == (
        "GPU 1 has 1 GiB left for memory quotas, where 2 GiB are asked for (--memory) and 5 % left for requests, where 10 % are asked for "
        "(--request) and no place left: all 64 vGPUs of the Gpu are taken",
    )


def test_a_policy_without_requests() -> None:
    fair = replace(TARGET, policy="fair", takes_requests=False)
    assert reasons(web(request=30.0), target=fair) == (
        "the policy fair of GPU 1 knows no requests, and web has one of 30 %",
    )
    assert make_plan(web(), ORIGIN, fair)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"name": "A100"}, "A100, compute capability 9.0, 80 GiB"),
        ({"capability": "8.0"}, "H100, compute capability 8.0, 80 GiB"),
        ({"memory_bytes": 94 * GIB}, "H100, compute capability 9.0, 94 GiB"),
    ],
)
def test_unlike_chips(other: dict[str, Any], said: str) -> None:
    assert reasons(web(), target=replace(TARGET, **other)) == (
        f"GPU 1 is another chip ({said}) than GPU 0 (H100, compute capability 9.0, 80 GiB)",
    )


def test_what_programs_take_now_with_their_contexts() -> None:
    traveller = web(program(4 * GIB, GIB))
    assert make_plan(traveller, ORIGIN, replace(TARGET, left_bytes=5 * GIB))
    assert reasons(traveller, target=replace(TARGET, left_bytes=5 * GIB - 1)) == (
        "GPU 1 has 5 GiB of memory left, where the programs of web take 5 GiB",
    )
    assert reasons(traveller, target=replace(TARGET, left_bytes=-GIB)) == (
        "GPU 1 has 0 B of memory left, where the programs of web take 5 GiB",
    )


def test_what_programs_may_allocate_where_it_is_bounded() -> None:
    traveller = web(program(4 * GIB, GIB))
    assert make_plan(traveller, ORIGIN, replace(TARGET, left_bytes=None, allocatable_left_bytes=4 * GIB))
    assert reasons(traveller, target=replace(TARGET, left_bytes=None, allocatable_left_bytes=3 * GIB)) == (
        "GPU 1 has 3 GiB left that programs may allocate, where those of web have 4 GiB",
    )


def test_a_program_that_shares_keeps_all_of_them() -> None:
    """The sixth of ten, say."""
    ten = [program(keeps=Keeps.SHARED if place == 5 else Keeps.NOT, name=f"p{place}") for place in range(10)]
    assert reasons(web(*ten)) == ("p5 (worker 7) shares memory with other programs",)


def test_a_programs_name_is_its_own_word() -> None:
    assert reasons(web(program(keeps=Keeps.SHARED, name="\x1b[2J"))) == (
        "\\x1b[2J (worker 7) shares memory with other programs",
    )


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (
            "cuCheckpointProcessLock gives CUDA_ERROR_NOT_SUPPORTED",
            "programs of GPU 0 cannot move: cuCheckpointProcessLock gives CUDA_ERROR_NOT_SUPPORTED",
        ),
        (None, "whether programs can move is still being tried on GPU 0: ask again in a minute"),
    ],
)
def test_a_mover_that_is_not_there(why: str | None, said: str) -> None:
    assert reasons(web(program()), replace(ORIGIN, no_mover=why)) == (said,)


def test_all_reasons_are_told_at_once() -> None:
    full = with_candidate(replace(TARGET, left_bytes=0), request_left=0.0)
    assert len(reasons(web(program(GIB, keeps=Keeps.SHARED), request=10.0), target=full)) == 3
