"""`fairgv-run --trace`, `--count` and `--json`: what a program asked of the driver, whoever calls and however it ends."""

import gzip
import itertools
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from backend_host import trace
from tests.end_to_end.host import Host

CLOCK_US = 1.0
"""What an event tells more finely is rounded."""
OPENS = """
import ctypes, os, signal
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
"""
LOOKS_UP = """
found = ctypes.c_void_p()
status = ctypes.c_int()
name = b'cuNo"\\n\\xff\\\\'
assert cuda.cuGetProcAddress_v2(name, ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
assert not found
"""


def read_trace(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def script(host: Host, text: str, path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Runs Python with counts: its exit status and the counts by name."""
    result = host.guest(sys.executable, "-c", text, options=("--json", str(path)))
    return result.returncode, {count["name"]: count for count in json.loads(path.read_text())}


@pytest.mark.parametrize("program", ["threads", "threads.shared"])
def test_trace_and_counts_agree(host: Host, program: str, tmp_path: Path) -> None:
    traced, counted = tmp_path / "trace", tmp_path / "counts"
    result = host.guest(program, options=("--trace", str(traced), "--count", "--json", str(counted)))
    plain = host.guest(program)
    assert (result.returncode, result.stdout) == (plain.returncode, plain.stdout), result.stderr
    calls = [entry for entry in read_trace(traced) if "call" in entry]
    counts = {count["name"]: count for count in json.loads(counted.read_text())}
    assert Counter(entry["call"] for entry in calls) == {
        name: count["nr"] for name, count in counts.items() if count["kind"] in ("call", "slot")
    }
    for name in ("cuLaunchKernel", "cuMemAlloc_v2", "cuDeviceGetAttribute"):
        mine = [entry for entry in calls if entry["call"] == name]
        for key in ("round_trips", "sent_bytes", "received_bytes", "time_ns"):
            sums = counts[name]["nr_round_trips" if key == "round_trips" else key]
            assert sum(entry[key] for entry in mine) == sums
    assert len({entry["thread"] for entry in calls if entry["call"] == "cuLaunchKernel"}) > 1
    assert {entry["class"] for entry in calls if entry["call"] == "cuLaunchKernel"} == {"sent"}
    of_memory = [entry["class"] for entry in calls if entry["call"] == "cuMemAlloc_v2"]
    assert set(of_memory) == {"waited", "local"}
    assert of_memory.count("waited") == 1, "for a slab"
    assert counts["cuDeviceGetAttribute"]["class"] == "local"
    assert "cuLaunchKernel" in result.stderr
    assert "names not found" in result.stderr


def test_a_trace_tells_names_tables_and_slots(host: Host, tmp_path: Path) -> None:
    traced = tmp_path / "trace"
    traced.write_text("from an earlier run\n")
    assert host.guest("vector_add", options=("--trace", str(traced))).returncode == 0
    entries = read_trace(traced)
    tables = {entry["table"]: entry["found"] for entry in entries if "table" in entry}
    assert True in tables.values()
    missing = {entry["missing"] for entry in entries if "missing" in entry}
    assert [name for name in missing if name and not name.startswith("cu")] == []  # the runtime asks for "" as well
    slots = [entry for entry in entries if entry.get("call", "").endswith("]")]
    assert slots
    assert {entry["call"][:8] for entry in slots} <= {table[:8] for table in tables}
    assert [entry["at_ns"] for entry in entries] == sorted(entry["at_ns"] for entry in entries)
    lines = list(trace.trace_lines(traced.read_text().splitlines()))
    assert len(lines) == len(entries)
    assert any("cuLaunchKernel: CUDA_SUCCESS, sent" in line for line in lines)


def test_counts_outlive_a_program_that_is_killed(host: Host, tmp_path: Path) -> None:
    text = OPENS + LOOKS_UP + "cuda.cuDeviceGet(None, 0)\nos.kill(os.getpid(), signal.SIGKILL)"
    status, counts = script(host, text, tmp_path / "counts")
    assert status == 128 + 9
    assert counts["cuInit"]["nr"] == 1
    assert counts["cuDeviceGet"]["nr_errors"] == 1
    assert counts["cuNo????"]["kind"] == "missing name"


def test_children_are_counted(host: Host, tmp_path: Path) -> None:
    text = OPENS + "import subprocess, sys\n"
    text += "if os.fork() == 0:\n    cuda.cuDriverGetVersion(None)\n    os._exit(0)\nos.wait()\n"
    text += f"subprocess.run([sys.executable, '-c', {OPENS!r}], check=True)\n"
    status, counts = script(host, text, tmp_path / "counts")
    assert status == 0
    assert counts["cuInit"]["nr"] == 2
    assert counts["cuDriverGetVersion"]["nr"] == 1


@pytest.mark.parametrize("option", ["--trace", "--json"])
@pytest.mark.parametrize("name", ["trace", "trace.json"])
def test_a_place_that_cannot_be_written(host: Host, tmp_path: Path, option: str, name: str) -> None:
    """It is told before the program runs."""
    path = tmp_path / "nowhere" / name
    result = host.guest("vector_add", options=(option, str(path)))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"fairgv-run: cannot write {path}: No such file or directory\n"


def test_a_place_without_room(host: Host) -> None:
    result = host.guest("vector_add", options=("--json", "/dev/full"))
    assert result.returncode == 1
    assert result.stderr == "fairgv-run: cannot write /dev/full: No space left on device\n"


def test_a_trace_without_room(host: Host) -> None:
    """The program goes on, and that calls are missing is said once."""
    result = host.guest("vector_add", options=("--trace", "/dev/full"))
    assert (result.returncode, result.stderr) == (0, "fairgv: the trace is not whole: No space left on device\n")


def test_a_program_without_calls(host: Host) -> None:
    result = host.guest("/bin/true", options=("--count",))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "no call of the driver\n")


def test_a_name_of_nothing_is_shown() -> None:
    asked = [trace.Count("missing name", name, nr_local=1) for name in ("cuNo", "")]
    assert "names not found: cuNo, ''" in printed(asked, 200)


def test_no_name_is_cut_on_a_narrow_terminal() -> None:
    """What fits beside names and times is shown, from the left."""
    names = ("cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxSetFlags_v2")
    counts = [trace.Count("call", name, nr_waited=123_456, time_ns=7 * 10**9, sent_bytes=1 << 30) for name in names]
    for width, columns in ((80, ["time", "each", "errors", "class"]), (50, ["time"]), (140, ["class", "received"])):
        head, *rows = printed(counts, width).splitlines()
        assert [row.split()[0] for row in rows] == [*names]
        assert all(f" {column}" in head for column in columns)
        assert "…" not in "".join((head, *rows))


def printed(counts: list[trace.Count], width: int) -> str:
    console = Console(width=width)
    with console.capture() as shown:
        console.print(trace.counts_table(counts))
    return shown.get()


def test_files_that_are_no_counts(tmp_path: Path) -> None:
    short = tmp_path / "counts"
    for data in (b"", b"FairGV", trace.MAGIC):
        short.write_bytes(data)
        with pytest.raises(trace.TraceError):
            trace.read_counts([short])
    short.write_bytes(trace.MAGIC + b"\xff" * (112 + 128))
    assert trace.read_counts([short]) == []


@pytest.mark.parametrize("text", ["root:x:0:0\n", '{"traceEvents": [\n{"ph": "M"},\n]}\n', "[1]\n", '"text"\n'])
def test_files_that_are_no_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "other"
    path.write_text(text)
    assert trace.main([str(path)]) == 1
    assert capsys.readouterr() == (
        "",
        f"python -m backend_host.trace: {path} is neither a trace nor a file of counts\n",
    )


@pytest.mark.parametrize("text", ["", '{"at_ns": 17, "pid": 1'])
def test_traces_of_programs_that_were_killed_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert trace.main([str(path)]) == 0
    assert capsys.readouterr() == ("", "")


def test_what_is_not_asked_for_is_not_there(host: Host) -> None:
    text = OPENS + "found, status = ctypes.c_void_p(), ctypes.c_int()\n"
    text += "look = cuda.cuGetProcAddress_v2\n"
    text += "assert look(b'cuInit', ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status)) == 0\n"
    text += "print([name for name in os.environ if name in ('FAIRGV_TRACE', 'FAIRGV_COUNT')])"
    result = host.guest(sys.executable, "-c", text)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr


def spans(path: Path, category: str | None = None) -> list[dict[str, Any]]:
    """What lasts, of one category or of all."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        events = json.load(file)["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    return [event for event in events if event["ph"] == "X" and category in (None, event["cat"])]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_calls_and_kernels_over_time(host: Host, tmp_path: Path, name: str) -> None:
    """In the form that trace viewers read: numbers of 32 bits for who, us for when; kernels one after another in each stream, in the run."""
    path = tmp_path / name
    result = host.guest("threads.shared", options=("--trace", str(path)))
    plain = host.guest("threads.shared")
    assert (result.returncode, result.stdout) == (plain.returncode, plain.stdout), result.stderr
    calls = [event for event in spans(path) if event["cat"] != "kernel"]
    kernels = spans(path, "kernel")
    assert len(kernels) == sum(event["name"] == "cuLaunchKernel" for event in calls) > 100
    assert {kernel["name"] for kernel in kernels} == {"add_one(int*)", "double_and_add(int*, int)"}
    assert all(0 <= event[key] < 1 << 31 for event in spans(path) for key in ("pid", "tid"))
    assert {kernel["pid"] for kernel in kernels}.isdisjoint(call["pid"] for call in calls)
    begun, ended = min(call["ts"] for call in calls), max(call["ts"] + call["dur"] for call in calls)
    assert not [kernel for kernel in kernels if not begun <= kernel["ts"] <= kernel["ts"] + kernel["dur"] <= ended]
    for stream in {kernel["tid"] for kernel in kernels}:
        row = sorted((k["ts"], k["dur"]) for k in kernels if k["tid"] == stream)
        assert not [two for two in itertools.pairwise(row) if two[0][0] + two[0][1] > two[1][0] + CLOCK_US]
    assert sorted(tmp_path.iterdir()) == [path]


def test_kernels_of_threads_that_have_ended(host: Host, tmp_path: Path) -> None:
    """The thread that ends the program has no context."""
    path = tmp_path / "trace.json"
    assert host.guest("per_thread_stream", options=("--trace", str(path))).returncode == 0
    kernels = spans(path, "kernel")
    assert [kernel["name"] for kernel in kernels] == ["power(unsigned int*, int)"] * 3
    assert len({kernel["tid"] for kernel in kernels}) == 3


def test_what_a_killed_program_traced_is_there(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = host.guest(
        sys.executable, "-c", f"{OPENS}os.kill(os.getpid(), signal.SIGKILL)", options=("--trace", str(path))
    )
    assert result.returncode == 128 + signal.SIGKILL
    assert "cuInit" in {event["name"] for event in spans(path)}
