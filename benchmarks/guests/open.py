"""Guests of the kind, and under the policy, that a measurement asks for."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend_host.config import Config, load_config
from backend_host.entitlement import Entitlement
from benchmarks.devices import native_environment
from benchmarks.guests.machine import machines
from benchmarks.guests.pinning import Pinning
from benchmarks.guests.process import NativeSession, ProcessGuests
from benchmarks.guests.session import Guests, Session
from benchmarks.mps import mps_server

NATIVE, MPS = "native", "mps"
"""Beside the names of policies: the driver's own sharing of the device, and NVIDIA's Multi-Process Service."""
GUEST_KINDS = ("process", "vm")
ON_ONE_GPU = Entitlement(gpu="0")
"""What is measured is how guests share a GPU; this is the one that native programs use by themselves."""


@dataclass(frozen=True)
class Setting:
    """What all measurements of one command have in common. `slice_ms` None: the device's; sizes in bytes."""

    device: str
    guests: str = "process"
    slice_ms: float | None = None
    region_bytes: int = 256 << 20
    daemon: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the daemon, by their names in `Config`."""
    pinning: Pinning | None = None
    """Of guests; native programs are nowhere in particular."""
    has_doorbell: bool = False
    """Of machines: they sleep until they are woken."""

    @property
    def slice_ns(self) -> int | None:
        """As the daemon is told."""
        return None if self.slice_ms is None else round(self.slice_ms * 1e6)


@contextlib.contextmanager
def open_session(
    system: str, setting: Setting, weights: Sequence[int] = (1,), programs: Sequence[Path] = ()
) -> Iterator[Session]:
    """`system` is a policy's name, or NATIVE, or MPS; `programs` are what virtual machines are to have.

    Raises NotMeasurableError for what cannot be had here.
    """
    if system == NATIVE:
        yield NativeSession(native_environment(setting.device))
    elif system == MPS:
        with mps_server(setting.device) as environment:
            yield NativeSession(environment)
    else:
        with open_guests(system, setting, weights, programs) as guests, guests.session() as session:
            yield session


@contextlib.contextmanager
def open_guests(
    policy: str, setting: Setting, weights: Sequence[int] = (1,), programs: Sequence[Path] = ()
) -> Iterator[Guests]:
    """For several sessions with the same guests; see `open_session`."""
    with daemon_config(policy, setting) as config:
        if setting.guests == "vm":
            with machines(config, weights, programs, setting.pinning, has_doorbell=setting.has_doorbell) as booted:
                yield booted
        else:
            yield ProcessGuests(config, weights, setting.pinning)


@contextlib.contextmanager
def daemon_config(policy: str, setting: Setting) -> Iterator[Config]:
    """Of a daemon whose folder is there for the block."""
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-", ignore_cleanup_errors=True) as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        yield load_config(
            None,
            state_dir=state_dir,
            device=setting.device,
            policy=policy,
            slice_ns=setting.slice_ns,
            region_bytes=setting.region_bytes,
            adopt="attached",
            **{"vgpu": ON_ONE_GPU, **setting.daemon},
        )
