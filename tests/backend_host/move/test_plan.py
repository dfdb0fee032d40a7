"""What a move takes, and all that may be in its way, with numbers."""

from dataclasses import replace
from typing import Any

import pytest

from backend_host.device.readings import NOT_BOUND, Bound, Keeps, WorkerReading, WorkerState
from backend_host.errors import RefusedError
from backend_host.generated.counters import WorkerCounters
from backend_host.move.plan import (
    DRIVER_BYTES_PER_S,
    PAUSE_S,
    REPLAY_PAUSE_S,
    REPLAY_PAUSE_S_PER_GIB,
    NoPlanError,
    Plan,
    Side,
    Traveller,
    make_plan,
)
from scheduler.placement import Candidate, Wish

GIB = 1 << 30
ORIGIN = Side(Candidate(0, 1.0, 1), "H100", "9.0", 80 * GIB, "elastic", takes_requests=True, left_bytes=0)
TARGET = replace(
    ORIGIN, candidate=Candidate(1, 0.0, 0, memory_left=80 * GIB), left_bytes=80 * GIB, allocatable_left_bytes=None
)
FAST, FAST_TARGET = (replace(side, has_fast_moves=True) for side in (ORIGIN, TARGET))


COUNTERS: dict[str, Any] = {**dict.fromkeys(WorkerCounters.__dataclass_fields__, 0), "whole": {}, "nr_waits": {}}


def program(
    linear_bytes: int = 0,
    more_bytes: int = 0,
    placed_bytes: int = 0,
    keeps: Keeps = Keeps.NOT,
    name: str = "train",
    bound: Bound = NOT_BOUND,
) -> WorkerReading:
    counted = {**COUNTERS, "linear_bytes": linear_bytes, "memory_bytes": linear_bytes + more_bytes}
    return WorkerReading(
        **counted,
        fixed_bytes=more_bytes,
        allocated_bytes=linear_bytes + placed_bytes,
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
        bound=bound,
    )


def web(*programs: WorkerReading, quota: int = 0, request: float = 0.0) -> Traveller:
    return Traveller("web", Wish(quota, request), programs)


def reasons(traveller: Traveller, origin: Side = ORIGIN, target: Side = TARGET, mover: str = "auto") -> tuple[str, ...]:
    with pytest.raises(NoPlanError) as refused:
        make_plan(traveller, origin, target, mover)
    assert str(refused.value) == f"web cannot move to GPU {target.number}: {'; '.join(refused.value.reasons)}"
    return refused.value.reasons


def with_candidate(side: Side, **known: Any) -> Side:
    return replace(side, candidate=replace(side.candidate, **known))


def test_memory_makes_pause_and_time_ahead() -> None:
    origin = replace(ORIGIN, context_bytes=GIB)
    plan = make_plan(web(program(6 * GIB, GIB), program(2 * GIB, GIB)), origin, TARGET)
    assert plan == Plan("web", 0, 1, "checkpoint", 2, 8 * GIB, plan.seconds, plan.pause_s)
    assert plan.seconds == pytest.approx(2.81)
    assert plan.pause_s == pytest.approx(1.21)
    assert make_plan(web(program()), ORIGIN, TARGET).pause_s == PAUSE_S, "contexts alone"


def test_what_the_driver_moves_beside_contexts_takes_time_out_and_in() -> None:
    origin = replace(ORIGIN, context_bytes=GIB)
    contexts = make_plan(web(program(GIB, GIB), program(GIB, GIB)), origin, TARGET)
    more = make_plan(web(program(GIB, 3 * GIB), program(GIB, GIB)), origin, TARGET)
    assert more.pause_s - contexts.pause_s == pytest.approx(4 * GIB / DRIVER_BYTES_PER_S)
    assert more.seconds - contexts.seconds == pytest.approx(4 * GIB / DRIVER_BYTES_PER_S)


def test_without_programs_nothing_is_checkpointed() -> None:
    """Nor does it need a mover."""
    plan = make_plan(web(), replace(ORIGIN, no_mover="no"), replace(TARGET, no_mover=None))
    assert plan == Plan("web", 0, 1, "checkpoint", 0, 0, 0.0, 0.0)


@pytest.mark.parametrize("mover", ["auto", "checkpoint"])
def test_movers_that_there_are(mover: str) -> None:
    assert make_plan(web(program()), ORIGIN, TARGET, mover).mover == "checkpoint"


def test_a_mover_that_there_is_not() -> None:
    with pytest.raises(RefusedError, match=r"^no mover is called 'other'; there are auto, replay, checkpoint$"):
        make_plan(web(), ORIGIN, TARGET, "other")


@pytest.mark.parametrize("mover", ["auto", "replay"])
def test_replay_takes_what_is_bound_to_nothing(mover: str) -> None:
    """Nor does it need to know whether there are checkpoints."""
    plan = make_plan(web(program(8 * GIB), program(8 * GIB)), replace(FAST, no_mover=None), FAST_TARGET, mover)
    assert plan == Plan("web", 0, 1, "replay", 2, 16 * GIB, plan.seconds, plan.pause_s)
    assert plan.pause_s == pytest.approx(REPLAY_PAUSE_S + 16 * REPLAY_PAUSE_S_PER_GIB)
    assert plan.pause_s < plan.seconds < 1
    assert make_plan(web(), FAST, FAST_TARGET, mover).pause_s == 0


def test_replay_goes_to_no_gpu_that_makes_room_for_memory() -> None:
    """From one that does it comes as from any."""
    crowded = replace(FAST_TARGET, left_bytes=None)
    why = ("GPU 1 makes room for memory of the programs that are there (oversubscribe), not for what comes ahead",)
    plan = make_plan(web(program()), FAST, crowded)
    assert (plan.mover, plan.no_replay) == ("checkpoint", why)
    assert reasons(web(program()), FAST, crowded, "replay") == why
    assert make_plan(web(), FAST, crowded, "replay").mover == "replay"
    assert make_plan(web(program()), replace(FAST, left_bytes=None), FAST_TARGET).mover == "replay"


def test_a_checkpoint_is_taken_where_it_is_asked_for() -> None:
    plan = make_plan(web(program(bound=Bound.HEAP)), FAST, FAST_TARGET, "checkpoint")
    assert (plan.mover, plan.no_replay) == ("checkpoint", ())


@pytest.mark.parametrize(("origin", "target"), [(ORIGIN, TARGET), (FAST, TARGET), (ORIGIN, FAST_TARGET)])
def test_replay_wants_programs_that_are_kept_ready(origin: Side, target: Side) -> None:
    assert reasons(web(program(bound=Bound.HEAP)), origin, target, "replay") == (
        "its programs are not kept ready for replay: fast_moves is not set (docs/migration.md)",
    )
    plan = make_plan(web(program()), origin, target)
    assert (plan.mover, plan.no_replay) == ("checkpoint", ())


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (Bound.VARIABLES, "has module variables"),
        (Bound.FUNCTIONS, "took addresses of device functions"),
        (Bound.HEAP, "uses the device's heap"),
        (Bound.NESTED, "has kernels that launch kernels"),
        (Bound.IMAGES, "has an image that was not kept or cannot be read"),
        (Bound.GRAPHS, "has graphs"),
        (Bound.ARRAYS, "has arrays, textures or surfaces"),
        (Bound.MEMORY, "has memory that the driver placed"),
        (Bound.SHARED, "shares memory with other programs"),
        (Bound.LINKS, "links images"),
        (Bound.DEVICE, "has a process that does not reach the other device"),
        (Bound.OBJECTS, "has an object that did not come out equal"),
        (Bound.ADDRESSES, "has an address of a module variable in memory or in a kernel"),
        (Bound.VARIABLES | Bound.GRAPHS, "has module variables, has graphs"),
    ],
)
def test_a_program_that_is_bound_is_told_by_name_and_checkpointed(bound: Bound, said: str) -> None:
    traveller = web(program(name="free"), program(bound=bound, name="\x1b[2J"))
    assert reasons(traveller, FAST, FAST_TARGET, "replay") == (f"\\x1b[2J (worker 7) {said}",)
    plan = make_plan(traveller, FAST, FAST_TARGET)
    assert (plan.mover, plan.no_replay, plan.pause_s) == ("checkpoint", (f"\\x1b[2J (worker 7) {said}",), PAUSE_S)


@pytest.mark.parametrize("mover", ["auto", "checkpoint"])
def test_managed_variables_go_by_no_mover(mover: str) -> None:
    traveller = web(program(), program(bound=Bound.MANAGED, name="other"))
    said = "other (worker 7) has managed variables, which drivers do not checkpoint"
    assert reasons(traveller, mover=mover) == (said,)
    assert reasons(traveller, FAST, FAST_TARGET, "replay") == ("other (worker 7) has managed variables",)


def test_where_neither_takes_it_all_is_told() -> None:
    traveller = web(program(bound=Bound.HEAP), program(keeps=Keeps.SHARED, name="other"))
    assert reasons(traveller, replace(FAST, no_mover="no checkpoints"), FAST_TARGET) == (
        "programs of GPU 0 cannot move: no checkpoints",
        "other (worker 7) shares memory with other programs",
        "train (worker 7) uses the device's heap",
    )


def test_a_place_is_wanted_whatever_the_mover() -> None:
    small = replace(FAST_TARGET, left_bytes=GIB)
    [auto], [replay] = (reasons(web(program(2 * GIB)), FAST, small, mover) for mover in ("auto", "replay"))
    assert auto == replay == "GPU 1 has 1 GiB of memory left, where the programs of web take 2 GiB"


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


def test_arrays_are_allocated_too() -> None:
    traveller = web(program(GIB, 4 * GIB, placed_bytes=3 * GIB))
    assert make_plan(traveller, ORIGIN, replace(TARGET, allocatable_left_bytes=4 * GIB))
    assert reasons(traveller, target=replace(TARGET, allocatable_left_bytes=4 * GIB - 1)) == (
        "GPU 1 has 4 GiB left that programs may allocate, where those of web have 4 GiB",
    )


def test_what_stays_leaves_each_program_room() -> None:
    """Where memory makes room the rest of it may wait, but each program needs all of its own at once."""
    target = replace(TARGET, left_bytes=None, movable_bytes=8 * GIB, unfixed_bytes=8 * GIB, largest_bytes=5 * GIB)
    assert make_plan(web(program(4 * GIB, 2 * GIB), program(5 * GIB, GIB)), ORIGIN, target)
    assert reasons(web(program(GIB, 4 * GIB)), target=target) == (
        "GPU 1 has room for 4 GiB beside what stays there and what of web would, where one program needs 5 GiB at once",
    )
    assert reasons(web(program(6 * GIB, 3 * GIB)), target=target) == (
        "GPU 1 has room for 5 GiB beside what stays there and what of web would, where one program needs 6 GiB at once",
    )
    assert reasons(web(program(0, 9 * GIB)), target=target) == (
        "GPU 1 has room for 0 B beside what stays there and what of web would, where one program needs 5 GiB at once",
    )
    assert make_plan(web(), ORIGIN, target)


@pytest.mark.parametrize("target", [TARGET, replace(TARGET, left_bytes=None)])
def test_what_the_host_has_for_memory_that_is_on_no_device(target: Side) -> None:
    """Who moves by replay has none there."""
    traveller = replace(web(program(4 * GIB, GIB), program(2 * GIB, GIB)), host_left_bytes=2 * GIB)
    assert make_plan(traveller, ORIGIN, target)
    short = replace(traveller, host_left_bytes=-GIB)
    assert reasons(short, target=target) == (
        "the programs of web take 8 GiB, 3 GiB more than is left of the host's memory for what leaves a device: raise swap_bytes, or resume "
        "another vGPU",
    )
    assert make_plan(short, FAST, FAST_TARGET).mover == "replay"
    assert make_plan(replace(short, programs=()), ORIGIN, target)


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
