"""The servers of `fairgv-bench bursts`: the programs that are run, and what is refused. Nothing is started."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import servers
from benchmarks.experiments.servers import DETECTION, KERNELS, NETWORK, Kernels, Model, check, programs


def test_rows_of_kernels_are_as_long_as_gemini_s_requests() -> None:
    assert [each.length_ms for each in servers.ROWS] == [36, 64, 78]
    assert [servers.pause_ms(each) for each in servers.ROWS] == [90, 160, 195]
    words = ("--work", "--random", "5", "--kernel-us", "6000", "--queue", "6", "--sleep-us", "90000")
    assert servers.ROWS[0].workload(5).arguments == words
    assert servers.ROWS[0].label == "6 kernels of 6 ms"


def test_kernels_are_useful_before_their_request_has_ended() -> None:
    assert Kernels(13, 6).useful_s({"kernels": 100.5, "requests": 16}) == pytest.approx(1.3065)


def test_a_model_pauses_by_its_measured_length() -> None:
    model = Model(programs(NETWORK, "soft", None)[0], "--random", 10.5)
    assert model.label == "network, 4 images"
    words = ("--size", "32", "--channels", "8", "--batch", "4", "--pause-ms", "26.25", "--random", "7")
    assert model.workload(7).arguments == words
    assert model.workload(7).path() == model.workload(8).path()
    assert model.useful_s({"counted_requests": 20.5, "requests": 30}) == pytest.approx(0.21525)


def test_models_that_find_objects_are_a_script() -> None:
    found = programs(DETECTION, "cuda", [1, 2, 2])
    assert [each.label for each in found] == [
        "fasterrcnn_resnet50, 1 image",
        "retinanet_resnet50, 2 images",
        "maskrcnn_resnet50, 2 images",
    ]
    assert found[1].arguments == ("retinanet_resnet50_fpn", "--size", "320", "--batch", "2")
    [path] = {each.path() for each in found}
    assert path.stat().st_mode & 0o111 == 0o111
    assert path.read_text().startswith("#!/usr/bin/env python3\n")


@pytest.mark.parametrize("kind", servers.KINDS)
def test_each_kind_has_three(kind: str) -> None:
    for device in ("cuda",) if kind == DETECTION else ("cuda", "soft"):
        assert len(programs(kind, device, None)) == servers.NR_SERVERS


@pytest.mark.parametrize(
    ("kind", "device", "guests", "batch", "why"),
    [
        (KERNELS, "soft", "process", [1, 2, 3], "--batch is of servers that compute on images"),
        (NETWORK, "soft", "vm", [1, 2], "--batch is 3 numbers, one for each server, not 2"),
        (DETECTION, "soft", "process", None, "softgpu does not run PyTorch"),
        (DETECTION, "cuda", "vm", None, "machines have no Python"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, device: str, guests: str, batch: Sequence[int] | None, why: str) -> None:
    with pytest.raises(NotMeasurableError, match=why):
        check(kind, device, guests, batch)


def test_detection_needs_a_python_with_its_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotMeasurableError, match="there is no python3 in PATH"):
        check(DETECTION, "cuda", "process", None)
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(servers, "NEEDED", ("argparse", "no_such_library"))
    with pytest.raises(NotMeasurableError, match="has no argparse and no_such_library: install them"):
        check(DETECTION, "cuda", "process", None)
    monkeypatch.setattr(servers, "NEEDED", ("argparse", "json"))
    check(DETECTION, "cuda", "process", None)
