"""The benchmark programs natively and as guests, on small inputs; and that their checks would notice a wrong result."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.build import C_FLAGS, NAMES, SOURCES, build, link_command
from benchmarks.workloads import GPU_SIZES
from tests.children import running
from tests.end_to_end.host import SOFTGPU, TIMEOUT_S, Host

HERE = Path(__file__).resolve().parent
SMALL = {
    "BFS": 1000,
    "BlackScholes": 1000,
    "FFT": 3,
    "Kmeans": 700,
    "alexnet": 1,
    "cfd": 200,
    "convolutionSeparable": 128,
    "heartwall": 4,
    "histogram": 10000,
    "hotspot": 64,
    "langevin": 2,
    "lavaMD": 2,
    "lennardJones": 3,
    "matrixMul": 64,
    "mnist_mlp": 64,
    "nw": 64,
    "pathfinder": 500,
    "scan": 4096,
    "srad_v1": 40,
    "streamcluster": 40,
}
NR_ROUNDS = 2
RUN_SHORTLY = ("--json", "--rounds", str(NR_ROUNDS))


def arguments_of(name: str) -> tuple[str, ...]:
    return (*RUN_SHORTLY, "--size", str(SMALL[name]))


def assert_reports(result: subprocess.CompletedProcess[str], name: str, *, is_checked: bool) -> None:
    """One JSON object with every key of the report, nothing else on stdout."""
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report) == ["name", "size", "unit", "throughput", "rounds", "seconds", "first_round_s", "checked"]
    assert report["name"] == name
    assert report["size"] == SMALL[name]
    assert report["unit"].endswith("/s")
    assert report["rounds"] == NR_ROUNDS
    assert report["checked"] is is_checked
    assert min(report["throughput"], report["seconds"], report["first_round_s"]) > 0


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without what this process has set, so without a device but for what `environment` says."""
    return subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_each_has_a_size_for_each_device() -> None:
    assert set(NAMES) == set(SMALL) == set(GPU_SIZES)


@pytest.mark.parametrize("name", NAMES)
def test_natively_and_as_a_guest(host: Host, name: str) -> None:
    program = build(name)
    assert_reports(host.native(str(program), *arguments_of(name)), name, is_checked=True)
    assert_reports(host.guest(program, *arguments_of(name)), name, is_checked=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_loops_need_no_driver(name: str) -> None:
    assert_reports(run(build(name), "--loops", *arguments_of(name)), name, is_checked=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_device_that_does_nothing_is_noticed(host: Host, tmp_path: Path, name: str) -> None:
    build(name)
    wrapper, program = tmp_path / "idle_device.o", tmp_path / name
    subprocess.run(["gcc", *C_FLAGS, "-I", SOURCES, "-c", "-o", wrapper, HERE / "idle_device.c"], check=True)
    subprocess.run(link_command(name, program, [str(wrapper), "-Xlinker", "--wrap=benchmark_main"]), check=True)
    result = host.native(str(program), *arguments_of(name))
    assert result.returncode == 1
    assert result.stderr.startswith(f"{name}: wrong result: ")
    assert result.stdout == ""


def test_without_a_device_cuda_says_so() -> None:
    result = run(build("matrixMul"), LD_LIBRARY_PATH=str(SOFTGPU), FAIRGV_SOFTGPU_DEVICES="0")
    assert result.returncode == 2
    assert "cudaMalloc" in result.stderr
    assert "cudaErrorNoDevice" in result.stderr


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness around a device that is none."""
    program = tmp_path_factory.mktemp("cases") / "harness_cases"
    sources = [HERE / "harness_cases.c", SOURCES / "common.c"]
    subprocess.run(["gcc", *C_FLAGS, "-I", SOURCES, "-o", program, *sources, "-lm"], check=True)
    return program


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (2, "float[999] is 1098.9"),
        (3, "float[7] is nan"),
        (4, "float[0] is 0 on the device and inf in the loops"),
        (5, "int[3] is 1 on the device and 0 in the loops"),
    ],
)
def test_a_wrong_result_is_told(cases: Path, kind: int, why: str) -> None:
    result = run(cases, *RUN_SHORTLY, "--size", str(kind))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"harness_cases: wrong result: {why}")
    assert result.stderr.endswith("released\n")
    assert run(cases, *RUN_SHORTLY, "--size", str(kind), "--no-check").returncode == 0


def test_a_right_result_passes(cases: Path) -> None:
    result = run(cases, *RUN_SHORTLY)
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert report["throughput"] == pytest.approx(2 * NR_ROUNDS / report["seconds"], rel=1e-6)
    assert "2 rounds" in run(cases, "--rounds", "2").stdout


def test_an_interrupt_ends_the_timed_part_with_a_report(cases: Path) -> None:
    child = subprocess.Popen(
        [cases, "--json", "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    assert child.stderr.readline() == "timed part\n"
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, errors
    report = json.loads(output)
    assert report["rounds"] > 0
    assert report["seconds"] < 600
    assert errors == "released\n"


def told(cases: Path, text: str) -> subprocess.CompletedProcess[str]:
    """The harness with `--together`, and everything that it is told at once."""
    command = [str(cases), "--json", "--together"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize("edge_s", [0, 0.05, 0.1])
def test_a_window_counts_its_own_rounds_alone(cases: Path, edge_s: float) -> None:
    with running([cases, "--json", "--together"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write(f"0.05 0.2 {edge_s}\n")
        child.stdin.flush()
        time.sleep(2)  # the window itself, which begins when the program has read of it
        output, _ = child.communicate("end\n", timeout=TIMEOUT_S)
    assert child.returncode == 0
    report = json.loads(output)
    assert report["seconds"] == pytest.approx(0.2 - edge_s, rel=1e-6)
    assert report["rounds"] > 0
    assert report["throughput"] == pytest.approx(2 * report["rounds"] / report["seconds"], rel=1e-6)


@pytest.mark.parametrize(
    "text", ["", "now\n", "-1 2 0\n", "0 0 0\n", "0 2\n", "0 2 1.1\n", "0 2 -1\n", "1763000000 1763000003 0\n"]
)
def test_what_is_no_window_is_refused(cases: Path, text: str) -> None:
    result = told(cases, text)
    assert result.returncode == 2
    assert result.stdout == "ready\n"
    assert "a window is three numbers" in result.stderr


def test_an_end_before_that_of_the_window_is_no_result(cases: Path) -> None:
    result = told(cases, "0 600 100\nend\n")
    assert result.returncode == 2
    assert "ended before its window did" in result.stderr


@pytest.mark.parametrize("wrong", [("--rounds", "0"), ("--size", "-1"), ("--seconds", "soon"), ("more",), ("--speed",)])
def test_a_wrong_command_line_is_refused(cases: Path, wrong: tuple[str, ...]) -> None:
    result = run(cases, *wrong)
    assert result.returncode == 2
    assert result.stdout == ""
    assert wrong[0].lstrip("-") in result.stderr
