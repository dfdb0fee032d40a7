"""The command: reads the host, judges it, and prints a table or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from backend_host import output
from backend_host.config import Config
from backend_host.doctor import confinement, daemon, device, domains, machine, memory, walls
from backend_host.doctor.verdict import State, Verdict
from backend_host.space.setting import SPACES
from backend_host.tables import folded, plain_table

_STYLES = {State.PASS: "green", State.WARN: "yellow", State.FAIL: "red"}


def run(config: Config, *, is_json: bool) -> int:
    """Exit status 1 when something fails."""
    found = examine(config)
    if is_json:
        output.say_json(
            [{"group": group, **asdict(verdict)} for group, verdicts in found.items() for verdict in verdicts]
        )
    else:
        output.show(table(found))
    return int(any(verdict.state is State.FAIL for verdicts in found.values() for verdict in verdicts))


def examine(config: Config) -> Mapping[str, Sequence[Verdict]]:
    """All verdicts, by group. Takes seconds: QEMU is asked, each wall is put up, a device library is opened."""
    running = daemon.read_daemon(daemon.socket_of(config))
    libvirt = domains.read_libvirt(config.libvirt_uri)
    regions = libvirt.regions or {}
    excused = config.walls.allow_missing
    return {
        "virtual machines": [
            machine.kvm(machine.read_kvm()),
            machine.qemu(machine.read_qemu()),
            domains.libvirt(libvirt),
            domains.hooks(domains.read_hooks()),
            domains.guests(domains.read_guests()),
            confinement.apparmor(confinement.read_apparmor()),
            confinement.selinux(confinement.read_selinux(regions)),
        ],
        "device": [
            device.device(served := device.read_device(config, running.status)),
            device.monitor(device.read_monitor(served)),
            device.mps(device.read_mps(config.state_dir / SPACES)),
            device.space(device.read_space(config, served)),
        ],
        "memory": [
            memory.shm(memory.read_shm(regions, config.region_bytes)),
            memory.memlock(memory.read_memlock(config.libvirt_uri, config.region_bytes)),
            memory.userfaultfd(memory.read_userfaultfd()),
        ],
        "walls": [
            *(walls.wall(finding, excused) for finding in walls.read_walls(config.walls)),
            walls.cgroups(walls.read_cgroups(), excused),
            walls.tenants(walls.read_tenants(config.walls), excused),
        ],
        "daemon": [
            daemon.state_dir(daemon.read_state_dir(config.state_dir)),
            daemon.daemon(running),
            daemon.unit(daemon.read_unit()),
        ],
    }


def table(found: Mapping[str, Sequence[Verdict]]) -> Table:
    """A row for each verdict, and an empty one between groups. What to do stands below what was found."""
    made = plain_table()
    for head in ("check", "", "found"):
        made.add_column(head)
    for place, verdicts in enumerate(found.values()):
        if place:
            made.add_row()
        for verdict in verdicts:
            said = [verdict.text, *([f"Remedy: {verdict.remedy}"] if verdict.remedy else [])]
            cell = Text("\n", overflow="fold").join(map(folded, said))
            made.add_row(verdict.check, Text(verdict.state, _STYLES[verdict.state]), cell)
    return made
