"""A process that asks NVML: `python -m backend_host.nvml.child figures|events UUID...`. A line of JSON for each thing that it has to say, on
its output.

    {"absent": WHY}                               NVML is not to be had; it ends
    {"devices": {UUID: {FIGURE: NUMBER}}}         `figures`, each second: what each device that NVML knows says of itself, as far as it does
    {"event": {"uuid": UUID, "lost": 1}}          `figures`: the device is not reached any more
    {"event": {"uuid": UUID, "xid": NUMBER}}      `events`, as it happens: an Xid; in its place "ecc": 1, an uncorrectable ECC error
    {"event": null}                               `events`: there was none for a second

NVML is the driver's code, and hangs when that does. So the daemon reads lines, with a time limit, and calls nothing (listener.py). Who waits
for events asks for nothing else: where a device fails, figures take long, or for ever, and the event that says so would stay behind them. The
process ends when nobody reads any more.
"""

import contextlib
import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

EXIT_ABSENT = 3
LOOK_MS = 1000
NO_PACKAGE = "the Python package nvidia-ml-py is not installed"
FIGURES, EVENTS = "figures", "events"
Line = Mapping[str, Any]


def main(what: str, uuids: Sequence[str]) -> int:
    """Until nobody reads; EXIT_ABSENT where there is no NVML."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        import pynvml as nvml  # noqa: PLC0415 - whether it is there is what the daemon asks
    except ImportError:
        return _absent(NO_PACKAGE)
    said = {FIGURES: _figures_said, EVENTS: _events_said}[what]
    try:
        nvml.nvmlInit()
        for line in said(nvml, dict(_found(nvml, uuids))):
            print(json.dumps(line), flush=True)
    except nvml.NVMLError as error:
        return _absent(f"NVML: {error}")
    return 0


def _absent(why: str) -> int:
    print(json.dumps({"absent": why}), flush=True)
    return EXIT_ABSENT


def _found(nvml: Any, uuids: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """A device that NVML does not know keeps nobody from the others. None: it is lost."""
    for uuid in uuids:
        try:
            yield uuid, nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                yield uuid, None


def _figures_said(nvml: Any, devices: Mapping[str, Any]) -> Iterator[Line]:
    """Line by line, for ever."""
    lost: set[str] = set()
    while True:
        found = {uuid: _figures(nvml, device) for uuid, device in devices.items()}
        for uuid in found.keys() - lost:
            if found[uuid] is None:
                lost.add(uuid)
                yield {"event": {"uuid": uuid, "lost": 1}}
        yield {"devices": {uuid: figures or {} for uuid, figures in found.items()}}
        time.sleep(LOOK_MS / 1000)


def _figures(nvml: Any, device: Any) -> dict[str, int] | None:
    """By their names in `Figures` (figures.py), those that the device has. None: it is lost."""
    if device is None:
        return None
    asked: Mapping[str, Callable[[], int]] = {
        "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(device),
        "energy_mj": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device),
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        "nr_ecc_errors": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
    }
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = int(ask())
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                return None
    return found


def _events_said(nvml: Any, devices: Mapping[str, Any]) -> Iterator[Line]:
    """Line by line, for ever. A driver that tells of no events lets the time pass."""
    wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
    events = nvml.nvmlEventSetCreate()
    uuids = {}
    for uuid, device in devices.items():
        if device is not None:
            uuids[_address(device)] = uuid  # a device that is lost does not tell its UUID any more
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlDeviceRegisterEvents(device, wanted & nvml.nvmlDeviceGetSupportedEventTypes(device), events)
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, LOOK_MS)
        except nvml.NVMLError as error:
            yield {"event": None}
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                time.sleep(LOOK_MS / 1000)
            continue
        is_xid = event.eventType == nvml.nvmlEventTypeXidCriticalError
        told = {"xid": int(event.eventData)} if is_xid else {"ecc": 1}
        yield {"event": {"uuid": uuids.get(_address(event.device)), **told}}


def _address(device: Any) -> int | None:
    """By which NVML knows it: one device has one, in all that it says."""
    return ctypes.cast(device, ctypes.c_void_p).value


if __name__ == "__main__":
    what, *uuids = sys.argv[1:]
    sys.exit(main(what, uuids))
