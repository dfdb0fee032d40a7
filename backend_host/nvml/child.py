"""The process that asks NVML: `python -m backend_host.nvml.child UUID...`. A line of JSON for each thing that it has to say, on its output.

    {"absent": WHY}                               NVML is not to be had; it ends
    {"devices": {UUID: {FIGURE: NUMBER}}}         each second: what each device says of itself, as far as it does
    {"event": {"uuid": UUID, "xid": NUMBER}}      an Xid, as it happens; in its place "ecc": 1, an uncorrectable ECC error, or "lost": 1, the
                                                  device is not reached any more

NVML is the driver's code, and hangs when that does. So the daemon reads lines, with a time limit, and calls nothing (watch.py). The process
ends when nobody reads any more.
"""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

EXIT_ABSENT = 3
LOOK_MS = 1000
NO_PACKAGE = "the Python package nvidia-ml-py is not installed"


def main(uuids: Sequence[str]) -> int:
    """Until nobody reads; EXIT_ABSENT where there is no NVML."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        import pynvml as nvml  # noqa: PLC0415 - whether it is there is what the daemon asks
    except ImportError:
        return _absent(NO_PACKAGE)
    try:
        nvml.nvmlInit()
        devices = dict(_found(nvml, uuids))
        wait = _listening(nvml, devices)
    except nvml.NVMLError as error:
        return _absent(f"NVML: {error}")
    for line in _said(nvml, devices, wait):
        print(json.dumps(line), flush=True)
    return 0


def _absent(why: str) -> int:
    print(json.dumps({"absent": why}), flush=True)
    return EXIT_ABSENT


def _found(nvml: Any, uuids: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """A device that NVML does not know has no figures, and keeps nobody from those of others."""
    for uuid in uuids:
        with contextlib.suppress(nvml.NVMLError):
            yield uuid, nvml.nvmlDeviceGetHandleByUUID(uuid)


def _said(nvml: Any, devices: Mapping[str, Any], wait: Callable[[], Any]) -> Iterator[Mapping[str, Any]]:
    """Line by line, for ever."""
    lost: set[str] = set()
    while True:
        found = {uuid: _figures(nvml, device) for uuid, device in devices.items()}
        for uuid in found.keys() - lost:
            if found[uuid] is None:
                lost.add(uuid)
                yield {"event": {"uuid": uuid, "lost": 1}}
        yield {"devices": {uuid: figures or {} for uuid, figures in found.items()}}
        if (event := wait()) is not None:
            yield {"event": event}


def _figures(nvml: Any, device: Any) -> dict[str, int] | None:
    """By their names in `Figures` (watch.py), those that the device has. None: it is lost."""
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


def _listening(nvml: Any, devices: Mapping[str, Any]) -> Callable[[], Mapping[str, Any] | None]:
    """Waits for an event for LOOK_MS. A driver that tells of none lets the time pass."""
    wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
    events = nvml.nvmlEventSetCreate()
    for device in devices.values():
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlDeviceRegisterEvents(device, wanted & nvml.nvmlDeviceGetSupportedEventTypes(device), events)

    def wait() -> Mapping[str, Any] | None:
        try:
            event = nvml.nvmlEventSetWait_v2(events, LOOK_MS)
            uuid = nvml.nvmlDeviceGetUUID(event.device)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                time.sleep(LOOK_MS / 1000)
            return None
        is_xid = event.eventType == nvml.nvmlEventTypeXidCriticalError
        return {"uuid": uuid, "xid": int(event.eventData)} if is_xid else {"uuid": uuid, "ecc": 1}

    return wait


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
