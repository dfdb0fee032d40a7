"""How often a worker calls the driver for a launch that is waited for; times are nobody's promise here."""

import pytest

from benchmarks.transport import open_scene

NR_ROUNDS, NR_ROWS = 500, 2000
NR_RESTS, REST_US = 960, 2000
NR_TURNS, NR_QUEUED = 640, 800
LEAST_MARKS = 12
MEASURED_FRACTION = 1 / 16
"""At most so many launches are put between events, to learn the device's latency, when the first ones have been."""
MOST_FIRST = 32
"""Of a program: of two kinds, soon after others and after a rest."""


def test_a_launch_and_its_synchronisation_are_a_launch_a_mark_and_a_question() -> None:
    with open_scene({"copy_mb_s": 0}) as scene:
        calls = scene.synchronisation(NR_ROUNDS).calls
        assert calls["cuLaunchKernel"] == 1
        assert calls["cuEventRecord"] == pytest.approx(1, abs=2 * MEASURED_FRACTION + 2 * MOST_FIRST / NR_ROUNDS)
        assert calls["cuEventQuery"] == pytest.approx(1, abs=2 * MEASURED_FRACTION)
        assert set(calls) <= {"cuLaunchKernel", "cuEventRecord", "cuEventQuery", "cuEventElapsedTime"}
        assert calls.get("cuEventElapsedTime", 0) <= MEASURED_FRACTION + MOST_FIRST / NR_ROUNDS
        assert scene.run("copy", "1", "16")["from_device"] > 0


@pytest.mark.parametrize(("nr_launches", "nr_bytes"), [(3, 0), (1, 8192)])
def test_the_latency_of_several_in_a_row_is_measured_too(nr_launches: int, nr_bytes: int) -> None:
    """Else what they are charged would rest on a stray sample, for as long as the program runs."""
    with open_scene({"kernel_ns": 100_000, "copy_mb_s": 80}) as scene:
        calls = scene.synchronisation(NR_ROWS, nr_launches, nr_bytes).calls
        assert calls["cuLaunchKernel"] == nr_launches
        nr_measured, nr_rows = scene.calls()["cuEventElapsedTime"], 3 * NR_ROWS
        assert nr_rows / 128 <= nr_measured <= MEASURED_FRACTION * nr_rows * nr_launches + 2 * MOST_FIRST


def test_the_latency_of_whole_turns_is_measured_too() -> None:
    """Of a queue so long that its end is looked for dozens of times before it comes."""
    with open_scene({"kernel_ns": 2_000}) as scene:
        scene.run("sync", str(NR_TURNS), str(NR_QUEUED), "0", "0")
        calls = scene.calls()
        assert calls["cuEventRecord"] > LEAST_MARKS * NR_TURNS
        assert calls["cuEventElapsedTime"] >= NR_TURNS // 64


def test_the_latency_after_a_rest_is_measured_by_itself_and_more_often() -> None:
    """Vgpus that take turns begin each of them with it, and seldom: what they launch in between tells nothing of it."""
    with open_scene({"kernel_ns": 100_000, "wake_ns": 20_000}) as scene:
        scene.run("sync", str(NR_RESTS), "1", "0", str(REST_US))
        nr_measured = scene.calls()["cuEventElapsedTime"]
        assert NR_RESTS / 40 <= nr_measured <= MEASURED_FRACTION * NR_RESTS + MOST_FIRST
