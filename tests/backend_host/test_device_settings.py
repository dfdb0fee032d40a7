"""Which devices are served, and what one of them has otherwise: names, tables, and every sentence that refuses one."""

import dataclasses
import json
from pathlib import Path

import pytest

from backend_host.cli import make_parser
from backend_host.config import Config, load_as_said, load_config, problems, read_again
from backend_host.config_keys import toml, written
from backend_host.device_settings import GpuSettings, chosen, settings_of
from backend_host.devices import Device, as_configured, device_name, numbered
from backend_host.errors import ConfigError, DeviceUnavailableError
from backend_host.oversubscription import capacity_of
from backend_host.service.reload import differences

DEVICES = [
    Device(
        kind="soft",
        path="libcuda.so.1",
        ordinal=ordinal,
        uuid=uuid,
        pci_bus_id="",
        name="device",
        memory_bytes=4 << 30,
        capability="8.0",
        driver_version=13000,
        preempts=False,
        reaches_host=False,
        facts=b"",
    )
    for ordinal, uuid in enumerate(("GPU-5c7a0001-aa", "GPU-5c7a0002-bb", "GPU-90000003-cc"))
]

CARDS = [dataclasses.replace(device, kind="cuda") for device in DEVICES]


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "fairgv.toml"
    path.write_text(text)
    return load_config(path)


def numbers(devices: list[Device]) -> list[int]:
    return [device.number for device in devices]


@pytest.mark.parametrize(
    ("names", "served"),
    [
        ((), [0, 1, 2]),
        (("2", "0"), [0, 2]),
        (("gpu-5C7A0002",), [1]),
        (("1", "GPU-5c7a0002"), [1]),
        (("GPU-9", "0"), [0, 2]),
    ],
)
def test_devices_are_named_by_number_or_uuid(names: tuple[str, ...], served: list[int]) -> None:
    troubles: list[str] = []
    assert numbers(chosen(DEVICES, names, troubles)) == served
    assert troubles == []


@pytest.mark.parametrize(
    ("names", "served", "sentence"),
    [
        (("3", "1"), [1], "devices: no device of this host is called 3; there are 0 (GPU-5c7a0001-aa), 1 "),
        (("GPU-5c7a", "2"), [2], "devices: several devices are called GPU-5c7a; there are"),
        (("0", "GPU-ff"), [0], "devices: no device of this host is called GPU-ff"),
    ],
)
def test_a_device_that_is_not_there_keeps_nobody_from_the_others(
    names: tuple[str, ...], served: list[int], sentence: str
) -> None:
    """It may be one that has failed."""
    troubles: list[str] = []
    assert numbers(chosen(DEVICES, names, troubles)) == served
    [trouble] = troubles
    assert trouble.startswith(sentence)


def test_where_none_is_left_there_is_nothing_to_serve() -> None:
    """The next try may find it, so it is no mistake for good."""
    with pytest.raises(DeviceUnavailableError, match=r"^devices: no device of this host is called 3; .*; devices: no "):
        as_configured(DEVICES, Config(devices=("3", "GPU-ff")), [])


def test_a_table_is_of_one_device(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        'slice_ms = 5\ndevices = [1, 0]\n[gpu.1]\nslice_ms = 12.5\npreempts = true\n[gpu.GPU-90]\ndevice_memory_bytes = "1G"\n',
    )
    first, second = as_configured(DEVICES, config, [])
    assert (first.ordinal, first.settings.slice_ns, first.preempts) == (0, None, False)
    assert (second.ordinal, second.settings.slice_ns, second.preempts) == (1, 12_500_000, True)
    assert Config.from_json(config.to_json()) == config
    [third] = as_configured(DEVICES, dataclasses.replace(config, devices=("2",)), [])
    assert capacity_of(third, config).resident == 1 << 30
    assert capacity_of(first, config).resident == 0


def test_a_device_has_all_its_memory_where_others_have_a_part(tmp_path: Path) -> None:
    config = read(
        tmp_path, 'device_memory_bytes = "1G"\n[gpu.0]\ndevice_memory_bytes = 0\n[gpu.1]\ndevice_memory_bytes = "8G"\n'
    )
    first, second, third = as_configured(DEVICES, config, [])
    assert [capacity_of(device, config).resident for device in (first, third)] == [0, 1 << 30]
    with pytest.raises(ConfigError, match=r"^\[gpu.1\] device_memory_bytes is 8 GiB, and device has 4 GiB$"):
        capacity_of(second, config)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (("GPU-5c7a", "2"), "[gpu.GPU-5c7a]: several devices are called"),
        (("7", "2"), "[gpu.7]: no device of this host is called 7"),
        (
            ("2", "GPU-90"),
            "[gpu.2] and [gpu.GPU-90] are of one device, which goes by the first: make one table of them",
        ),
    ],
)
def test_a_table_of_no_device_is_left_out(tables: tuple[str, ...], sentence: str) -> None:
    troubles: list[str] = []
    assert settings_of(DEVICES, [GpuSettings(name) for name in tables], troubles) == {2: GpuSettings("2")}
    [trouble] = troubles
    assert trouble.startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("devices = 1", 'devices must be a list of numbers and UUIDs, as [0, "GPU-5c7a"], not 1'),
        (
            "devices = [true]",
            "devices: a device is named by its number or by the beginning of its UUID, GPU-5c7a say, not True",
        ),
        ("devices = ['']", "devices: a device is named by"),
        ("devices = [-1]", "devices: a device is named by"),
        ("gpu = 3", "gpu must be a table, not 3"),
        ("[gpu]\nslice_ms = 3", "[gpu.slice_ms]: a device is named by"),
        ("[gpu]\n0 = 3", "[gpu.0] must be a table, not 3"),
        ("[gpu.'a b']", "[gpu.a b]: a device is named by"),
        ("[gpu.0]\nslice = 3", "[gpu.0] unknown key 'slice'; known are: device_memory_bytes, preempts, slice_ms"),
        ("[gpu.0]\nslice_ms = 0.5", "[gpu.0] slice_ms must be from 1 to 60000, in milliseconds, not 0.5"),
        ("[gpu.0]\nslice_ms = 60001", "[gpu.0] slice_ms must be from 1 to 60000, in milliseconds, not 60001"),
        ("[gpu.0]\nslice_ms = true", "[gpu.0] slice_ms must be"),
        ("[gpu.0]\nslice_ms = nan", "[gpu.0] slice_ms must be"),
        ("[gpu.0]\nslice_ms = inf", "[gpu.0] slice_ms must be"),
        ("[gpu.0]\npreempts = 1", "[gpu.0] preempts must be true or false, not 1"),
        (
            "[gpu.0]\ndevice_memory_bytes = '1M'",
            "[gpu.0] device_memory_bytes must be 0, for all there is, or from 64M to 1024T, not '1M'",
        ),
        ("[gpu.0]\ndevice_memory_bytes = 'much'", "[gpu.0] device_memory_bytes must be a size"),
    ],
)
def test_every_wrong_key_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_text(text)
    assert [said for said in problems(path) if said.startswith(sentence)] == problems(path) != []
    with pytest.raises(ConfigError):
        load_config(path)


def test_what_is_shown_is_a_file_of_the_same(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        'devices = [1, "GPU-90"]\n[gpu.GPU-5c7a]\nslice_ms = 7\ndevice_memory_bytes = "1G"\npreempts = false\n',
    )
    shown = written(config)
    assert (shown["devices"], shown["gpu.GPU-5c7a.device_memory_bytes"]) == (("1", "GPU-90"), "1G")
    keys = {key.rpartition(".")[2]: value for key, value in shown.items() if key.startswith("gpu.")}
    text = "\n".join(
        [
            f"devices = {toml(shown['devices'])}",
            "[gpu.GPU-5c7a]",
            *(f"{key} = {toml(value)}" for key, value in keys.items()),
        ]
    )
    assert read(tmp_path, text) == config


def test_an_option_wins_and_is_kept_for_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "fairgv.toml"
    path.write_text("devices = [0]\n")
    options = make_parser().parse_args(["start", "--devices", "1, GPU-90"])
    assert options.devices == ("1", "GPU-90")
    config = load_as_said(path, devices=options.devices)
    assert config.devices == ("1", "GPU-90")
    assert read_again(config).devices == ("1", "GPU-90")
    assert json.loads(config.given)["devices"] == ["1", "GPU-90"]


def test_an_option_that_names_nothing_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["start", "--devices", "0,,1"])
    assert "a device is named by its number" in capsys.readouterr().err


def test_a_change_takes_a_start_and_is_named() -> None:
    before, after = Config(), Config(devices=("1",), gpu=(GpuSettings("0", slice_ms=3),))
    assert [change.key for change in differences(before, after)] == ["devices", "gpu"]


KNOWN = {device_name(device): device.ordinal for device in CARDS}


@pytest.mark.parametrize(
    ("now", "known", "expected"),
    [
        ([0, 1, 2], {}, [(0, 0), (1, 1), (2, 2)]),
        ([0, 1, 2], KNOWN, [(0, 0), (1, 1), (2, 2)]),
        ([0, 2], KNOWN, [(0, 0), (2, 1)]),
        ([2], KNOWN, [(2, 0)]),
        ([0, 1, 2], {device_name(CARDS[0]): 0, device_name(CARDS[2]): 1}, [(0, 0), (1, 2), (3, 1)]),
        ([0, 1, 2], {"fairgv/served/GPU-lost": 0}, [(1, 1), (2, 2), (3, 0)]),
        ([0, 1, 2], {"fairgv/served/soft-1": 0, "nonsense": 1}, [(0, 0), (1, 1), (2, 2)]),
    ],
    ids=["first", "again", "lost", "all but the last", "one that is new", "all but new ones", "of softgpu"],
)
def test_a_device_keeps_its_number(now: list[int], known: dict[str, int], expected: list[tuple[int, int]]) -> None:
    """Whatever the library counts: by number and ordinal."""
    found = [dataclasses.replace(CARDS[card], ordinal=ordinal) for ordinal, card in enumerate(now)]
    devices = numbered(found, known)
    assert [(device.number, device.ordinal) for device in devices] == expected
    assert [device.uuid for device in devices] == [found[ordinal].uuid for _, ordinal in expected]


def test_names_are_of_the_number_that_it_keeps() -> None:
    lost = [dataclasses.replace(CARDS[card], ordinal=ordinal) for ordinal, card in enumerate((0, 2))]
    config = Config(devices=("2",), gpu=(GpuSettings("2", slice_ms=3),))
    troubles: list[str] = []
    [device] = as_configured(numbered(lost, KNOWN), config, troubles)
    assert (device.uuid, device.ordinal, device.settings.slice_ns, troubles) == (CARDS[2].uuid, 1, 3_000_000, [])
