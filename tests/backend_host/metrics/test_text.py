"""The text of all metrics: that Prometheus reads it, that others' names change nothing in it, and that it is as long as there are vGPUs."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backend_host.fairness import Received
from backend_host.metrics.catalogue import INFOS, OF_ALL
from backend_host.metrics.text import exposition
from backend_host.statistics import (
    ClientStatistics,
    CoschedulingStatistics,
    DaemonStatistics,
    GpuStatistics,
    SpaceStatistics,
    Totals,
    VGpuStatistics,
)
from tests.backend_host.metrics.scraping import of, read
from tests.promtool import needs_promtool, promtool

IN_NONE = {"class": "fair", "space": ""}
HOSTILE = [
    "%s%%",
    'a"} 1\nfairgv_vgpu_weight{vgpu="other',
    "a\\",
    "a\nb",
    "{}",
    "\ud800",
    "x" * 300,
    '\\"',
    "\x00",
    "ä",
]
GPU = GpuStatistics(
    name="a device",
    kind="soft",
    library="/lib",
    capability="8.0",
    memory_bytes=4 << 30,
    driver_version=13000,
    preempts=False,
    number=0,
    uuid="GPU-5c7a",
    pci_bus_id="0000:f0:00.0",
    policy="fair",
    slice_ns=6_000_000,
    used_ns=3_500_000_000,
    used_bytes=4096,
    recent_shares={},
    vgpus=("one", "two"),
    walls=(),
    min_max_ratio=0.98,
)


def vgpu(name: str, kind: str = "session", used_ns: int = 0) -> VGpuStatistics:
    return VGpuStatistics(
        name=name,
        kind=kind,
        weight=2,
        quota_bytes=1 << 30,
        request=25.0,
        limit=50.0,
        gpu_number=0,
        gpu_uuid=GPU.uuid,
        region_bytes=1 << 28,
        region_free_bytes=1 << 27,
        memory_bytes=4096,
        used_ns=used_ns,
        held_ns=0,
        share=0.25,
        nr_grants=3,
        coscheduling=CoschedulingStatistics("real-time", True, 5, 0),
        totals=Totals(
            1, nr_round_trips=5, nr_sent=7, nr_refused=1, whole={"graph": 2}, nr_waits={"300000": 2, "longer": 1}
        ),
        clients=(ClientStatistics("program", 0, 17, nr_modules=3),),
        recent_shares={1: 0.9, 10: 0.5, 60: 0.25},
        received=Received(0.3, 1.0, 0.99, True),
        refused={"clients": 2, "banned": 0},
    )


def daemon(*vgpus: VGpuStatistics, **more: object) -> DaemonStatistics:
    statistics = DaemonStatistics(1, 10**9, "fair", 6_000_000, GPU, (GPU,), vgpus)
    return replace(statistics, **more)  # type: ignore[arg-type]


def told(*vgpus: VGpuStatistics, **more: object) -> str:
    return exposition(daemon(*vgpus, **more), "0.1").decode()


def test_what_is_told_of_a_vgpu() -> None:
    series = read(told(vgpu("one", used_ns=1_500_000_000), vgpu("two", used_ns=2_000_000_000)))
    expected = {
        "gpu_seconds_total": 1.5,
        "share_ratio": 0.25,
        "entitled_ratio": 0.3,
        "active_ratio": 1.0,
        "received_ratio": 0.99,
        "weight": 2,
        "request_ratio": 0.25,
        "limit_ratio": 0.5,
        "memory_bytes": 4096,
        "memory_limit_bytes": 1 << 30,
        "grants_total": 3,
        "programs": 1,
        "modules": 3,
        "wait_seconds_count": 3,
    }
    for name, value in expected.items():
        assert of(series, f"fairgv_vgpu_{name}", vgpu="one") == [value], name
    assert of(series, "fairgv_vgpu_calls_total", vgpu="one", **{"class": "sent"}) == [7]
    assert of(series, "fairgv_vgpu_calls_total", vgpu="one", **{"class": "waited"}) == [5]
    assert of(series, "fairgv_vgpu_refused_total", vgpu="one", reason="request") == [1]
    assert of(series, "fairgv_vgpu_refused_total", vgpu="one", reason="clients") == [2]
    assert of(series, "fairgv_vgpu_whole_total", vgpu="one", whole="graph") == [2]
    assert of(series, "fairgv_vgpu_wait_seconds_bucket", vgpu="one", le="0.0003") == [2]
    assert of(series, "fairgv_device_busy_seconds_total", gpu="0") == [3.5]
    assert of(series, "fairgv_fairness_min_max_ratio", gpu="0") == [0.98]
    assert of(series, "fairgv_build_info", version="0.1") == [1]


def test_programs_of_an_earlier_release_are_counted_and_not_named() -> None:
    waits = read(told(waits_for="3 programs", nr_old_programs=3))
    assert waits["fairgv_daemon_old_programs", frozenset()] == 3
    assert of(read(told()), "fairgv_daemon_old_programs") == [0]


def test_troubles_are_counted_and_not_named() -> None:
    assert of(read(told(troubles=("of one", "of another"))), "fairgv_daemon_troubles") == [2]
    assert of(read(told()), "fairgv_daemon_troubles") == [0]


def test_what_there_is_none_of_is_not_told() -> None:
    series = read(
        told(replace(vgpu("one"), quota_bytes=0, received=Received()), gpus=(replace(GPU, min_max_ratio=None),))
    )
    for name in ("fairgv_vgpu_memory_limit_bytes", "fairgv_vgpu_received_ratio", "fairgv_fairness_min_max_ratio"):
        assert of(series, name) == []


SPACE = SpaceStatistics(
    name="web",
    gpu_number=0,
    way="mps",
    split=(20, 7),
    slowdowns={"p50": 1.01, "p95": 1.2, "p99": 1.5},
    nr_rounds=200,
    nr_missed=3,
    progress=0.75,
    nr_gated=4,
    gated_ns=1_500_000_000,
    nr_faults=2,
)


def test_a_space_is_told_of_by_its_name() -> None:
    series = read(told(spaces=(SPACE,)))
    expected = {
        "faults_total": 2,
        "rounds_total": 200,
        "missed_rounds_total": 3,
        "progress_ratio": 0.75,
        "gated_total": 4,
        "gated_seconds_total": 1.5,
    }
    for name, value in expected.items():
        assert of(series, f"fairgv_space_{name}", space="web") == [value], name
    assert of(series, "fairgv_space_slowdown", space="web", percentile="p95") == [1.2]
    assert of(series, "fairgv_space_split", space="web", of="multiprocessors") == [20]
    assert of(series, "fairgv_space_split", space="web", of="blocks") == [7]


def test_spaces_of_one_name_on_two_gpus_are_told_apart() -> None:
    series = read(told(spaces=(SPACE, replace(SPACE, gpu_number=1, nr_rounds=7))))
    assert of(series, "fairgv_space_rounds_total", gpu="0", space="web") == [200]
    assert of(series, "fairgv_space_rounds_total", gpu="1", space="web") == [7]


def test_of_a_space_without_rounds_only_what_there_is_is_told() -> None:
    series = read(told(spaces=(SpaceStatistics(name="web", gpu_number=0, way="turns"),)))
    names = {name for name, labels in series if ("space", "web") in labels}
    assert names == {
        f"fairgv_space_{name}_total" for name in ("faults", "rounds", "missed_rounds", "gated", "gated_seconds")
    }


def test_as_many_series_as_spaces() -> None:
    nr = [len(read(told(spaces=tuple(replace(SPACE, name=str(each)) for each in range(many))))) for many in (0, 1, 5)]
    assert nr[2] - nr[0] == 5 * (nr[1] - nr[0]) == 55


def test_a_domain_is_known_by_its_uuid() -> None:
    series = read(told(vgpu("run"), vgpu("vm", kind="domain"), domain_uuids={"vm": "d1-2"}))
    assert of(series, "fairgv_vgpu_info", vgpu="vm", kind="domain", domain="vm", uuid="d1-2", gpu="0", **IN_NONE) == [1]
    assert of(series, "fairgv_vgpu_info", vgpu="run", kind="session", domain="", uuid="", gpu="0", **IN_NONE) == [1]


def test_every_metric_is_told_once_with_help_and_type() -> None:
    families = [family.name for family in text_string_to_metric_families(told(vgpu("one")))]
    names = [*INFOS, *(metric.name for metrics, _ in OF_ALL for metric in metrics)]
    assert families == [name.removesuffix("_total") for name in names]
    assert all(family.documentation for family in text_string_to_metric_families(told(vgpu("one"))))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_changes_nothing_but_its_label(name: str) -> None:
    honest, hostile = read(told(vgpu("vm", kind="domain"))), read(told(vgpu(name, kind="domain")))
    shown = name.encode(errors="replace").decode()
    renamed = {
        (found, frozenset((label, value if value != "vm" else shown) for label, value in labels)): value
        for (found, labels), value in honest.items()
    }
    assert hostile == renamed


def test_series_are_bounded_by_vgpus() -> None:
    none, one, two = (len(read(told(*vgpus))) for vgpus in ((), [vgpu("a")], [vgpu("a"), vgpu("b")]))
    assert two - one == one - none


@needs_promtool
def test_promtool_has_nothing_to_say() -> None:
    for text in (told(), told(vgpu("one"), vgpu("two", kind="domain"))):
        assert promtool("check", "metrics", text=text) == (0, "")
