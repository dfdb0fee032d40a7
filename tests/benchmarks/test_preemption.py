"""benchmarks.preemption without a GPU: which channels it finds and names, what its program computes, and its tables."""

import ctypes
import errno
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import preemption
from benchmarks.devices import native_environment, private_device
from benchmarks.preemption.__main__ import C_FLAGS, Tenant, UnexpectedAnswerError, build_tenant, expect
from benchmarks.preemption.grid import preemption_grids

FOLDER = Path(preemption.__file__ or "").parent
FILE, CLIENT, OTHER_CLIENT = 5, 0xC1D00001, 0xC1D00002
DEVICE, SUBDEVICE, GROUP, COPIES = 0x80, 0x2080, 0xA06C, 0xA06C
CHANNEL, COMPUTE, COPY = 0xC86F, 0xCBC0, 0xC8B5
HOLD, PREEMPT, SET_TIMESLICE = 0x2080110B, 0xA06C0105, 0xA06C0103


class Answer(ctypes.Structure):
    _fields_ = (("error", ctypes.c_int), ("status", ctypes.c_uint32), ("us", ctypes.c_double))


class Found(ctypes.Structure):
    _fields_ = (("groups", ctypes.c_uint), ("computing", ctypes.c_uint), ("channels", ctypes.c_uint))


class Alloc(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("client", "parent", "object", "kind")),
        *((name, ctypes.c_uint64) for name in ("parameters", "rights")),
        *((name, ctypes.c_uint32) for name in ("bytes", "flags", "status", "padding")),
    )


class ShortAlloc(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("client", "parent", "object", "kind")),
        ("parameters", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("bytes", "status")),
    )


class Free(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("client", "parent", "object", "status"))


class Wrapped(ctypes.Structure):
    _fields_ = (("number", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("place", ctypes.c_uint64))


class Control(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("client", "object", "command", "flags")),
        ("parameters", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("bytes", "status")),
    )


class Process:
    """A process whose driver library makes what the test says."""

    def __init__(self, library: Path) -> None:
        self.c = ctypes.CDLL(str(library))
        self.c.channels_find.restype = Found
        for name in ("timeslice", "set_timeslice", "preempt", "hold"):
            getattr(self.c, f"channels_{name}").restype = Answer
        self.c.channels_set_timeslice.argtypes = [ctypes.c_uint64]

    def request(self, number: int, argument: ctypes.Structure) -> None:
        code = 3 << 30 | ctypes.sizeof(argument) << 16 | ord("F") << 8 | number
        assert self.c.ioctl(FILE, ctypes.c_ulong(code), ctypes.byref(argument)) == 0

    def alloc(self, parent: int, handle: int, kind: int, *, client: int = CLIENT, status: int = 0) -> None:
        self.request(0x2B, Alloc(client=client, parent=parent, object=handle, kind=kind, status=status))

    def found(self) -> tuple[int, int, int]:
        found = self.c.channels_find()
        return found.groups, found.computing, found.channels

    def control(self) -> tuple[Control, list[int]]:
        """The last that went to the driver, with its parameters in words."""
        control = Control.in_dll(self.c, "last_control")
        return control, list((ctypes.c_uint32 * 160).in_dll(self.c, "last_parameters"))


@pytest.fixture
def process(tmp_path: Path) -> Process:
    library = tmp_path / "channels.so"
    sources = [FOLDER / "channels.c", Path(__file__).with_name("channels_driver.c")]
    command = ["gcc", *C_FLAGS, "-Dsyscall=driver_answers", "-fPIC", "-shared", "-I", str(FOLDER), *map(str, sources)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return Process(library)


@pytest.fixture
def computing(process: Process) -> Process:
    """A context: a group that computes with two channels, one that copies with one."""
    process.alloc(CLIENT, DEVICE, 0x80)
    process.alloc(DEVICE, 7, SUBDEVICE)
    process.alloc(DEVICE, 10, GROUP)
    process.alloc(10, 11, CHANNEL)
    process.alloc(10, 12, CHANNEL)
    process.alloc(11, 13, COMPUTE)
    process.alloc(12, 14, COMPUTE)
    process.alloc(DEVICE, 20, COPIES)
    process.alloc(20, 21, CHANNEL)
    process.alloc(21, 22, COPY)
    return process


def test_without_channels_every_control_says_so(process: Process) -> None:
    us = ctypes.c_uint64()
    answers = [process.c.channels_timeslice(ctypes.byref(us)), process.c.channels_set_timeslice(1)]
    answers += [process.c.channels_preempt(1), process.c.channels_hold(True)]
    assert [answer.error for answer in answers] == [errno.ENODEV] * 4
    assert process.control()[0].command == 0


def test_the_computing_group_alone_is_held(computing: Process) -> None:
    assert computing.found() == (2, 1, 3)
    assert computing.c.channels_hold(True).error == 0
    control, words = computing.control()
    assert (control.client, control.object, control.command) == (CLIENT, 7, HOLD)
    assert words[:6] == [1, 2, 0, 0, 0, 0]
    assert words[6:9] == [CLIENT, CLIENT, 0]
    assert words[70:73] == [11, 12, 0]
    assert computing.c.channels_hold(False).error == 0
    assert computing.control()[1][:2] == [0, 2]


def test_controls_of_the_group(computing: Process) -> None:
    assert computing.c.channels_set_timeslice(1234).error == 0
    control, words = computing.control()
    assert (control.object, control.command, words[:2]) == (10, SET_TIMESLICE, [1234, 0])
    assert computing.c.channels_preempt(5000).error == 0
    control, words = computing.control()
    assert (control.object, control.command, words[0] & 0xFFFF, words[1]) == (10, PREEMPT, 0x101, 5000)


def test_a_refusal_is_told(computing: Process) -> None:
    ctypes.c_uint32.in_dll(computing.c, "control_status").value = 0x1B
    assert computing.c.channels_preempt(1).status == 0x1B


def test_what_the_driver_refused_to_make_is_not_there(process: Process) -> None:
    process.alloc(DEVICE, 10, GROUP, status=0x1B)
    assert process.found() == (0, 0, 0)


def test_other_sizes_and_wrappings_of_a_request(process: Process) -> None:
    process.request(0x2B, ShortAlloc(client=CLIENT, parent=DEVICE, object=10, kind=GROUP))
    channel = Alloc(client=CLIENT, parent=10, object=11, kind=CHANNEL)
    process.request(211, Wrapped(number=0x2B, bytes=ctypes.sizeof(channel), place=ctypes.addressof(channel)))
    assert process.found() == (1, 0, 1)


def test_freed_objects_are_forgotten(computing: Process) -> None:
    for handle in (13, 14):
        computing.request(0x29, Free(client=CLIENT, object=handle))
    assert computing.found() == (2, 0, 3)
    assert computing.c.channels_hold(True).error == errno.ENODEV


def test_a_second_computing_group_is_not_guessed_about(computing: Process) -> None:
    for parent, handle, kind in ((DEVICE, 10, GROUP), (10, 11, CHANNEL), (11, 13, COMPUTE)):
        computing.alloc(parent, handle, kind, client=OTHER_CLIENT)
    assert computing.found() == (3, 2, 4)
    assert computing.c.channels_hold(True).error == errno.EEXIST


def test_a_group_is_held_whole_or_not_at_all(computing: Process) -> None:
    for handle in range(100, 162):
        computing.alloc(10, handle, CHANNEL)
    assert computing.c.channels_hold(True).error == 0
    computing.alloc(10, 162, CHANNEL)
    assert computing.c.channels_hold(True).error == errno.E2BIG


@pytest.fixture(scope="module")
def tenant() -> Iterator[Tenant]:
    with private_device("soft"), Tenant(native_environment("soft")) as tenant:
        yield tenant


def test_the_kernel_computes_the_same_again(tenant: Tenant) -> None:
    tenant.ask("start 0.1")
    first = tenant.ask("finish")
    tenant.ask("start 0.1")
    assert tenant.ask("finish")["digest"] == first["digest"]
    tenant.ask("start 0.2")
    assert tenant.ask("finish")["digest"] != first["digest"]


@pytest.mark.parametrize("command", ["timeslice", "timeslice 5", "preempt 3", "hold", "release", "alternate 3 5"])
def test_a_device_without_channels_ends_the_experiment(tenant: Tenant, command: str) -> None:
    assert tenant.found == {"groups": 0, "computing": 0, "channels": 0}
    record = tenant.control(command, command)
    assert [answer["errno"] for answer in record["answers"]] == [errno.ENODEV]
    with pytest.raises(UnexpectedAnswerError, match=f"^{command}: errno {errno.ENODEV}"):
        expect(record)


def test_tables() -> None:
    answers = [{"errno": 0, "status": 0, "us": 5.0}, {"errno": 0, "status": 0x1B, "us": 9.0}]
    document = {
        "records": [
            {"kind": "control", "what": "held", "answers": answers},
            {"kind": "wait", "what": "absent", "us": [float(us) for us in range(100, 0, -1)]},
            {"kind": "verdict", "what": "a kernel", "verdict": "stands still"},
        ]
    }
    controls, waits, verdicts = preemption_grids(json.loads(json.dumps(document)))
    assert controls.rows == (("held", "2", "status 0x1b", "7", "9"),)
    assert waits.rows == (("absent", "100", "51", "91", "100"),)
    assert verdicts.rows == (("a kernel", "stands still"),)


def test_the_program_stands_before_libcs_ioctl() -> None:
    symbols = subprocess.run(["nm", "-D", build_tenant()], capture_output=True, text=True, check=True).stdout
    assert any(line.split()[-2:] == ["T", "ioctl"] for line in symbols.splitlines())
