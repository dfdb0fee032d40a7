"""backend_host/channels: which channels of a process it finds, and what the driver is told of them."""

import ctypes
import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from backend_host.channels import SOURCE

C_FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
FILE, CLIENT, OTHER_CLIENT = 5, 0xC1D00001, 0xC1D00002
DEVICE, SUBDEVICE, GROUP, COPIES = 0x80, 0x2080, 0xA06C, 0xA06C
CHANNEL, COMPUTE, COPY = 0xC86F, 0xCBC0, 0xC8B5
DISABLE = 0x2080110B


class Answer(ctypes.Structure):
    _fields_ = (("error", ctypes.c_int), ("status", ctypes.c_uint32))


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
        self.c.fgv_channels_set_off.restype = Answer

    def request(self, number: int, argument: ctypes.Structure) -> None:
        code = 3 << 30 | ctypes.sizeof(argument) << 16 | ord("F") << 8 | number
        assert self.c.ioctl(FILE, ctypes.c_ulong(code), ctypes.byref(argument)) == 0

    def alloc(self, parent: int, handle: int, kind: int, *, client: int = CLIENT, status: int = 0) -> None:
        self.request(0x2B, Alloc(client=client, parent=parent, object=handle, kind=kind, status=status))

    def set_off(self, is_off: bool) -> Answer:
        answer: Answer = self.c.fgv_channels_set_off(is_off)
        return answer

    def controls(self) -> list[tuple[Control, list[int]]]:
        """What went to the driver since it was last asked, each with its parameters in words."""
        nr = ctypes.c_uint.in_dll(self.c, "nr_controls")
        controls = (Control * 8).in_dll(self.c, "controls")
        parameters = (ctypes.c_uint32 * 160 * 8).in_dll(self.c, "parameters")
        found = [(Control.from_buffer_copy(controls[i]), list(parameters[i])) for i in range(nr.value)]
        nr.value = 0
        return found

    def refuse(self, nr_obeyed: int) -> None:
        """So many controls are obeyed from now on, those behind them are not."""
        ctypes.c_uint.in_dll(self.c, "nr_obeyed").value = nr_obeyed


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("channels") / "channels.so"
    sources = [SOURCE, Path(__file__).with_name("channels_driver.c")]
    command = ["gcc", *C_FLAGS, "-Dsyscall=driver_answers", "-fPIC", "-shared", *map(str, sources)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


@pytest.fixture
def process(compiled: Path, tmp_path: Path) -> Process:
    """The library keeps what it found, and a copy of it knows nothing yet."""
    return Process(Path(shutil.copy(compiled, tmp_path)))


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
    assert [process.set_off(True).error, process.set_off(False).error] == [errno.ENODEV] * 2
    assert process.controls() == []


def test_the_computing_group_alone_is_held(computing: Process) -> None:
    assert computing.set_off(True).error == computing.set_off(False).error == 0
    (disable, words), (_, released) = computing.controls()
    assert (disable.client, disable.object, disable.command) == (CLIENT, 7, DISABLE)
    assert words[:6] == [1, 2, 0, 0, 0, 0]
    assert words[6:9] == [CLIENT, CLIENT, 0]
    assert words[70:73] == [11, 12, 0]
    assert released[:2] == [0, 2]


def test_after_a_checkpoint_what_was_made_anew_is_held(computing: Process) -> None:
    computing.c.fgv_channels_renew(False)
    for parent, handle, kind in ((DEVICE, 7, SUBDEVICE), (DEVICE, 30, GROUP), (30, 31, CHANNEL), (31, 32, COMPUTE)):
        computing.alloc(parent, handle, kind, client=OTHER_CLIENT)
    computing.c.fgv_channels_renew(True)
    assert computing.set_off(True).error == 0
    [(disable, words)] = computing.controls()
    assert (disable.client, disable.object) == (OTHER_CLIENT, 7)
    assert (words[1], words[6], words[70]) == (1, OTHER_CLIENT, 31)


def test_without_a_checkpoint_all_is_as_it_was(computing: Process) -> None:
    computing.c.fgv_channels_renew(False)
    computing.alloc(DEVICE, 40, COPIES)
    computing.c.fgv_channels_renew(True)
    assert computing.set_off(True).error == 0
    [(disable, words)] = computing.controls()
    assert (disable.client, words[1], words[70:72]) == (CLIENT, 2, [11, 12])


def test_a_refusal_is_told(computing: Process) -> None:
    computing.refuse(0)
    assert computing.set_off(True).status == 0x1B


def test_what_the_driver_refused_to_make_is_not_there(process: Process) -> None:
    process.alloc(DEVICE, 7, SUBDEVICE)
    process.alloc(DEVICE, 10, GROUP, status=0x1B)
    process.alloc(10, 11, CHANNEL)
    process.alloc(11, 13, COMPUTE)
    assert process.set_off(True).error == errno.ENODEV
    process.alloc(DEVICE, 10, GROUP)
    assert process.set_off(True).error == 0


def test_other_sizes_and_wrappings_of_a_request(process: Process) -> None:
    process.request(0x2B, ShortAlloc(client=CLIENT, parent=DEVICE, object=10, kind=GROUP))
    channel = Alloc(client=CLIENT, parent=10, object=11, kind=CHANNEL)
    process.request(211, Wrapped(number=0x2B, bytes=ctypes.sizeof(channel), place=ctypes.addressof(channel)))
    process.alloc(DEVICE, 7, SUBDEVICE)
    process.alloc(11, 13, COMPUTE)
    assert process.set_off(True).error == 0
    ((_, words),) = process.controls()
    assert words[:2] == [1, 1]
    assert (words[6], words[70]) == (CLIENT, 11)


def test_freed_objects_are_forgotten(computing: Process) -> None:
    for handle in (13, 14):
        computing.request(0x29, Free(client=CLIENT, object=handle))
    assert computing.set_off(True).error == errno.ENODEV
    computing.alloc(11, 13, COMPUTE)
    assert computing.set_off(True).error == 0, "nothing else was forgotten"
    ((_, words),) = computing.controls()
    assert words[70:73] == [11, 12, 0]


@pytest.fixture
def two_groups(computing: Process) -> Process:
    """A second context, with a channel of its own."""
    objects = (
        (CLIENT, DEVICE, 0x80),
        (DEVICE, 8, SUBDEVICE),
        (DEVICE, 30, GROUP),
        (30, 31, CHANNEL),
        (31, 33, COMPUTE),
    )
    for parent, handle, kind in objects:
        computing.alloc(parent, handle, kind, client=OTHER_CLIENT)
    return computing


def test_every_group_that_computes_is_held(two_groups: Process) -> None:
    assert two_groups.set_off(True).error == 0
    held = [(control.client, control.object, words[0], words[1]) for control, words in two_groups.controls()]
    assert held == [(CLIENT, 7, 1, 2), (OTHER_CLIENT, 8, 1, 1)]


def test_what_was_held_is_let_go_when_the_next_cannot_be_held(two_groups: Process) -> None:
    two_groups.refuse(1)
    assert two_groups.set_off(True).status == 0x1B
    told = [(control.object, words[0]) for control, words in two_groups.controls()]
    assert told == [(7, 1), (8, 1), (7, 0), (8, 0)]


def test_every_group_is_let_go_however_that_of_the_first_went(two_groups: Process) -> None:
    two_groups.refuse(0)
    assert two_groups.set_off(False).status == 0x1B
    assert [(control.object, words[0]) for control, words in two_groups.controls()] == [(7, 0), (8, 0)]


def test_a_group_is_held_whole_or_not_at_all(computing: Process) -> None:
    for handle in range(100, 162):
        computing.alloc(10, handle, CHANNEL)
    assert computing.set_off(True).error == 0
    computing.alloc(10, 162, CHANNEL)
    assert computing.set_off(True).error == errno.E2BIG


def test_nothing_is_held_where_something_was_not_remembered(computing: Process) -> None:
    for handle in range(1000, 1000 + 4096):
        computing.alloc(10, handle, CHANNEL)
    assert computing.set_off(True).error == errno.ENOBUFS
