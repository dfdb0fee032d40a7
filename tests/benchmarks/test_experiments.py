"""Every experiment once in its smallest form, on softgpu with real guests. No time is asserted."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiments import EXPERIMENTS, loops, shares, sharing
from benchmarks.experiments.slicing import SIZES, Sizes
from benchmarks.guests import NATIVE, Setting
from benchmarks.results import section
from benchmarks.stretch import Outcome
from benchmarks.workloads import spin

PNG = b"\x89PNG"
SHORT = ("--device", "soft", "--seconds", "0.4", "--repetitions", "1")


def measured(folder: Path, *words: str, status: int = 0) -> dict[str, Any]:
    """What an experiment wrote. It has drawn something, too."""
    path, plot = folder / "out" / "found.json", folder / "out" / "found.png"
    assert main([words[0], *SHORT, *words[1:], "--json", str(path), "--plot", str(plot)]) == status
    document: dict[str, Any] = json.loads(path.read_text())
    assert plot.read_bytes().startswith(PNG)
    assert document["experiment"] == words[0]
    assert document["device"] == "softgpu"
    assert document["ended"] is None
    assert document["command"].startswith(f"fairgv-bench {words[0]} ")
    assert str(path) not in document["command"]
    assert EXPERIMENTS[words[0]].sheets(document)
    assert all(0 <= record["steal"] <= 1 for record in document["records"])
    return document


def of_kind(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [record for record in document["records"] if record["kind"] == kind]


def test_overhead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--programs", "matrixMul,scan", "--kernel-us", "391", "--rounds", "1", "--mib", "1")
    document = measured(tmp_path, "overhead", *words)
    assert document["failures"] == []
    for record in of_kind(document, "program") + of_kind(document, "size"):
        assert min(record["native"], record["guest"]) > 0
    [operations] = of_kind(document, "operations")
    assert {"launch_async", "pinned_to_device", "pageable_from_device"} <= set(operations["values"])
    profiles = {record["program"]: record for record in of_kind(document, "profile")}
    assert set(profiles) == {"matrixMul", "scan"}
    for record in profiles.values():
        assert min(record["nr_timed"], record["kernel_us"], record["asynchronous"], record["synchronous"]) > 0
        assert record["total"] == pytest.approx(record["asynchronous"] + record["synchronous"])
    # matrixMul waits once for three launches.
    product = profiles["matrixMul"]
    assert product["asynchronous"] == pytest.approx(3 * product["synchronous"], rel=0.05)
    printed = capsys.readouterr().out
    for what in ("Figure 7", "44.27", "geometric mean", "pinned_to_device"):
        assert what in printed


def test_mmr_and_the_driver_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--program", "spin", "--weights", "1:2", "--policy", "fair,credit-hs", "--native", "--bursts")
    document = measured(tmp_path, "mmr", *words, "--slice-ms", "2", "--seconds", "1")
    assert [record["system"] for record in of_kind(document, "together")] == ["fair", "credit-hs", "native", "bursts"]
    assert document["refused"] == ["mps: MPS is NVIDIA's: there is none for softgpu"]
    for record in of_kind(document, "together"):
        is_native = record["system"] == "native"
        for guest in record["guests"]:
            assert guest["throughput"] > 0
            assert (guest["charged_s"] is None) == is_native
    printed = capsys.readouterr().out
    assert "ideal 30 15" in printed


def test_shares_over_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--seconds", "3", "--period", "0.1", "--slice-ms", "2")
    document = measured(tmp_path, "shares-over-time", *words)
    assert document["failures"] == []
    [record] = of_kind(document, "shares over time")
    changes = [(change["guest"], change["weight"]) for change in record["changes"]]
    assert changes == [(0, 1), (1, 2), (2, 3), (3, 4), (0, 6)]
    assert 1 <= record["changes"][3]["at_s"] <= record["changes"][4]["at_s"]
    times = [sample["at_s"] for sample in record["samples"]]
    assert times == sorted(times)
    assert all(used_s > 0 for used_s in record["samples"][-1]["used_s"])
    assert record["samples"][0]["used_s"][3] == 0
    assert "of its due" in capsys.readouterr().out


def test_mixed(tmp_path: Path) -> None:
    document = measured(tmp_path, "mixed", "--program", "matrixMul", "--background-us", "207")
    [record] = of_kind(document, "together")
    assert (record["program"], record["background_us"]) == ("matrixMul", 207)
    assert {guest["workload"] for guest in record["guests"]} == {"matrixMul", "kernels of 207 us, 97 in a row"}


def test_work_conserving(tmp_path: Path) -> None:
    document = measured(tmp_path, "work-conserving", "--sleep-percent", "80", "--program", "matrixMul")
    [record] = of_kind(document, "utilisation")
    busy, sleeper = record["parts"]
    assert min(busy, sleeper) > 0


def test_accounting(tmp_path: Path) -> None:
    document = measured(
        tmp_path, "accounting", "--programs", "matrixMul", "--kernel-us", "500", "--slice-ms", "2", "--seconds", "1"
    )
    [program] = of_kind(document, "program")
    assert min(program["kernel_us"], program["charged_us"]) > 0
    [mixture] = of_kind(document, "mixture")
    assert len(mixture["errors"]) == 2
    assert mixture["gaps_us"]
    [switch] = of_kind(document, "switch")
    assert len(switch["switches_us"]) > 1
    assert min(switch["switches_us"]) >= 0


def test_slicing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = Sizes((4,), (4,), 1, (200, 20), 2, 2, 1000, (8,))
    monkeypatch.setitem(SIZES, "soft", smallest)
    document = measured(tmp_path, "slicing", "--only", "costs,waits")
    assert document["failures"] == []
    assert [record["parts"] for record in of_kind(document, "cost")] == [1, 4, 0, 8, -1]
    assert [record["kind"] for record in document["records"]] == [*["cost"] * 3, *["wait"] * 4, *["cost"] * 2]
    assert all(record["seconds"] > 0 for record in of_kind(document, "cost"))
    waits = {record["way"]: record for record in of_kind(document, "wait")}
    assert list(waits) == ["alone", "whole", "in parts", "persistent"]
    for name, record in waits.items():
        assert len(record["us"]) == 2
        assert (record["others_s"] is None) == (name == "alone")


def test_shares_of_long_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shares.LENGTHS, "soft", replace(shares.LENGTHS["soft"], kernel_s=0.2))
    monkeypatch.setattr(shares, "WEIGHTS", ((1, 1), (3, 1)))
    monkeypatch.setattr(shares, "WAYS", {name: shares.WAYS[name] for name in ("in parts", "native")})
    document = measured(tmp_path, "slicing", "--only", "shares", "--slice-ms", "2", "--seconds", "0.6")
    assert document["failures"] == []
    short, long = "kernels of 50 us, 256 in a row", "kernels of 0.2 s"
    alone = [(record["way"], record["workload"]) for record in of_kind(document, "share alone")]
    assert alone == [("in parts", long), ("native", long), ("fair", short), ("native", short)]
    found = of_kind(document, "share")
    weights = [(record["way"], [guest["weight"] for guest in record["guests"]]) for record in found]
    assert weights == [("in parts", [1, 1]), ("native", [1, 1]), ("in parts", [3, 1])]
    for record in found:
        assert [guest["workload"] for guest in record["guests"]] == [long, short]
        assert record["kernel_blocks"] > 0
        assert all(guest["alone"] > 0 for guest in record["guests"])
        assert record["way"] == "native" or all(guest["throughput"] > 0 for guest in record["guests"])
    assert "Shares of a tenant of endless kernels of 0.2 s" in section(document)


def test_shares_of_kernels_that_did_not_go_in_parts_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shares.LENGTHS, "soft", shares.Lengths(0.1, 100, {}))
    monkeypatch.setattr(shares, "WEIGHTS", ((1, 1),))
    monkeypatch.setattr(shares, "WAYS", {"in parts": shares.WAYS["in parts"]})
    path = tmp_path / "found.json"
    assert main(["slicing", *SHORT, "--only", "shares", "--json", str(path)]) == 1
    document = json.loads(path.read_text())
    assert [record["way"] for record in document["records"]] == ["fair"]
    assert document["failures"] == [
        "kernels of 0.1 s alone, in parts: its launches went whole",
        "shares 1:1, in parts: what the programs reach alone was not measured",
    ]


def test_loops(tmp_path: Path) -> None:
    document = measured(tmp_path, "loops", "--programs", "matrixMul")
    [record] = document["records"]
    assert min(record["softgpu"], record["loops"]) > 0
    assert record["cold_s"] > record["warm_s"] > 0


def test_loops_waits_for_optimised_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tmp_path / "0123.quick.so"
    quick.touch()
    monkeypatch.setattr("time.sleep", lambda _: quick.unlink())
    loops.wait_until_optimised(tmp_path)
    assert not quick.exists()
    quick.touch()
    monkeypatch.setattr(loops, "MOST_S", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(NotMeasurableError, match="has not optimised"):
        loops.wait_until_optimised(tmp_path)


def test_decisions(tmp_path: Path) -> None:
    document = measured(tmp_path, "decisions", "--decisions", "5")
    assert len(document["records"]) == 5


def test_a_program_that_fails_costs_its_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.GPU_SIZES", {})
    monkeypatch.setattr("benchmarks.experiments.overhead.sized", _wrongly_sized)
    words = ("--parts", "programs", "--programs", "matrixMul,scan")
    document = measured(tmp_path, "overhead", *words, status=1)
    assert [record["program"] for record in of_kind(document, "program")] == ["scan"]
    assert any("not a multiple of" in failure for failure in document["failures"])


def _wrongly_sized(program: str, device: str) -> Any:
    from benchmarks.workloads import Workload  # noqa: PLC0415

    size = ("--size", "33") if program == "matrixMul" else ()
    return Workload(program, program, ("--json", "--no-check", *size))


ANSWER = """\
#include <cstdio>
__global__ void answer(int *where) { *where = 42; }
int main()
{
    int *device, host = 0;
    cudaMalloc(&device, sizeof(int));
    answer<<<1, 1>>>(device);
    cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\\nElapsed time: %ld ms\\n", host, (long)device);
    return 0;
}
"""
RUN_TARGET = """\
words: words.cu
\tnvcc -o $@ $<
run: words
\t./words a "c d"
\t@./words e
"""
WORDS = """\
#include <cstdio>
#include <cstdlib>
int main(int argc, char **argv)
{
    printf("%d words, the last of them '%s'\\n", argc, argv[argc - 1]);
    return getenv("FAIRGV_REGION") || getenv("FAIRGV_VGPU") ? 3 : 0;
}
"""
LIBRARY_PATH = '#include <cstdio>\n#include <cstdlib>\nint main() { puts(getenv("LD_LIBRARY_PATH")); return 0; }\n'
CLOCK = '#include <cstdio>\n#include <ctime>\nint main() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); printf("%ld\\n", t.tv_nsec); }\n'


def test_programs_of_one_name_in_the_folder_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a folder beside it; and `.`, which has no name of its own."""
    folder = tmp_path / "programs"
    (folder / "answer").mkdir(parents=True)
    (folder / "answer/Makefile").write_text("answer: answer.cu\n\tnvcc -o $@ $<\n")
    for place in (folder, folder / "answer"):
        (place / "answer.cu").write_text(ANSWER)
    monkeypatch.chdir(folder)
    document = measured(tmp_path, "run", "--dir", ".", "--outputs", str(tmp_path / "outputs"))
    assert [(each["program"], each["verdict"]) for each in document["records"]] == [
        ("answer", "agrees"),
        ("answer.cu", "agrees"),
    ]
    monkeypatch.chdir(folder / "answer")
    document = measured(tmp_path, "run", "--dir", ".", "--outputs", str(tmp_path / "outputs"))
    assert [each["program"] for each in document["records"]] == ["answer"]


def test_run_tells_what_agrees_and_what_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "programs"
    (folder / "made").mkdir(parents=True)
    (folder / "made/Makefile").write_text("answer: answer.cu\n\tnvcc -o $@ $<\n")
    (folder / "made/answer.cu").write_text(ANSWER)
    (folder / "told").mkdir()
    (folder / "told/Makefile").write_text(RUN_TARGET)
    (folder / "told/words.cu").write_text(WORDS)
    (folder / "broken.cu").write_text("int main( {\n")
    (folder / "path.cu").write_text(LIBRARY_PATH)
    (folder / "time.cu").write_text(CLOCK)
    before = sorted(path.name for path in folder.rglob("*"))
    outputs = tmp_path / "outputs"
    document = measured(tmp_path, "run", "--dir", str(folder), "--jobs", "3", "--outputs", str(outputs), status=1)
    found = {record["program"]: record for record in document["records"]}
    assert {name: record["verdict"] for name, record in found.items()} == {
        "broken.cu": "does not build",
        "made": "agrees",
        "told": "fails",
        "path.cu": "differs",
        "time.cu": "differs from itself",
    }
    assert "error" in found["broken.cu"]["why"]
    assert found["made"]["ratio"] == found["made"]["guest_s"] / found["made"]["native_s"]
    kept = {
        f"{name}.{side}.txt" for name in ("path.cu", "time.cu", "told") for side in ("native", "native-again", "fairgv")
    }
    assert {path.name for path in outputs.iterdir()} == kept
    assert (outputs / "told.native.txt").read_text().splitlines()[:2] == [
        "3 words, the last of them 'c d'",
        "2 words, the last of them 'e'",
    ]
    assert sorted(path.name for path in folder.rglob("*")) == before
    printed = capsys.readouterr().out
    assert "1 agrees" in printed
    assert "geometric mean" in printed


def test_a_program_that_does_nothing_alone_is_nothing_to_compare_with(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(0.0, {}, None, None, None, None, None)
    monkeypatch.setattr(sharing, "open_session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(sharing, "run_together", lambda *_: [outcome])
    with pytest.raises(ProgramFailedError, match=r"nothing was done in a window of 0\.1 s"):
        sharing.alone(spin(50, 1), NATIVE, Setting("soft"), 0.1)
