"""The host's package in a fresh Debian with a real systemd as the first process: from its installation to its purge.

One boot serves the tests, in their order. The two guests are programs of two vGPUs under `fairgv-run`: a virtual machine inside of an emulated
one is too slow. Both compute from their start to the purge, and neither may get a CUDA error.

Wrong when: the kernel, which is this host's, has all walls. Then nothing needs to be excused, and the first test sees no daemon that fails.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.test_rpm import VERSION
from tests.test_packaging import MOST_EXPOSED
from tests.vm_install.machine import Debian, booted
from tests.vm_install.packages import HOST, LATER, as_later, depends

pytestmark = [
    pytest.mark.install,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.geteuid() != 0, reason="the disk is made as root"),
]
PROGRAMS = Path(__file__).resolve().parents[2] / "build/programs"
WEIGHTS = {"one": 1, "two": 2}
NR_RESTARTS = 20
NR_LAUNCHES = 32
"""In a round of a program's. With one there is as much to do on the processor as on the device, and no program wants more than its share."""
STRETCH_NS = 5_000_000_000
CLEARLY_FAIR = 0.6
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q"


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    folder = tmp_path_factory.mktemp("debian")
    carried = [HOST, as_later(HOST, folder)]
    files = {PurePosixPath("/root") / deb.name: deb for deb in carried}
    files |= {PurePosixPath("/programs") / name: PROGRAMS / name for name in ("steady", "vector_add")}
    with booted(folder, depends(HOST), files) as running:
        yield running


@dataclass(frozen=True)
class Look:
    """One status, which takes seconds here: its workers, and what each vGPU has used."""

    workers: set[int]
    used_ns: dict[str, int]

    @classmethod
    def at(cls, debian: Debian) -> "Look":
        vgpus = debian.json("fairgv-host status --json")["vgpus"]
        workers = {client["worker_pid"] for vgpu in vgpus for client in vgpu["clients"]}
        return cls(workers, {vgpu["name"]: vgpu["used_ns"] for vgpu in vgpus})

    def has_used_more(self, before: "Look", more_ns: int = 0) -> bool:
        """Whether each has used so much of the GPU since then."""
        return all(self.used_ns[name] > used + more_ns for name, used in before.used_ns.items())


def await_use(debian: Debian, before: Look, more_ns: int = 0) -> Look:
    """The first look at which each has used so much more, with the workers that it had."""
    looks: list[Look] = []

    def have_used_more() -> bool:
        looks.append(Look.at(debian))
        assert looks[-1].workers == before.workers
        return looks[-1].has_used_more(before, more_ns)

    debian.wait_for(have_used_more, "both compute")
    return looks[-1]


def assert_all_go_on(debian: Debian, before: Look) -> Look:
    """The same workers, and each vGPU computes, with the account that it had."""
    debian.wait_until("systemctl is-active fairgv.service", "active".__eq__)
    return await_use(debian, before)


def await_another(debian: Debian, pid: str) -> None:
    """Until systemd has started the daemon anew."""
    debian.wait_until("systemctl show --value --property=MainPID fairgv.service", lambda new: new not in ("0", pid))


def test_apt_installs_it_and_says_why_it_does_not_serve(debian: Debian) -> None:
    said = debian.says(f"{INSTALL} /root/{HOST.name}", 1200)
    assert debian.says("getent group fairgv fairgv-admin | wc -l") == "2"
    assert debian.says("systemctl is-enabled fairgv.service fairgv.socket").split() == ["enabled", "enabled"]
    checks = {check["check"]: check for check in debian.json("fairgv-host doctor --json")}
    missing = [
        name.removeprefix("wall ")
        for name, check in checks.items()
        if name.startswith("wall ") and check["state"] == "fail"
    ]
    assert ("the daemon does not start" in said) == bool(missing)
    if missing:  # which no restart mends: it is not tried again, not even for a command that comes, which is told so
        assert "cannot start, and is not started again by itself" in debian.run("fairgv-host status").output
        debian.wait_until("systemctl is-failed fairgv.service", "failed".__eq__)
        assert debian.property("NRestarts") == "0"
    excused = ", ".join(f'"{wall}"' for wall in missing)
    file = f'metrics = "127.0.0.1:9400"\\nweb = "127.0.0.1:9401"\\n[walls]\\nallow_missing = [{excused}]\\n'
    debian.says(f"printf '{file}' >/etc/fairgv/config.toml; fairgv-host config check /etc/fairgv/config.toml")


def test_systemd_hears_when_it_is_ready(debian: Debian) -> None:
    debian.says("systemctl restart fairgv.service", 1200)
    assert debian.property("ActiveState") == "active"
    assert debian.property("StatusText").startswith("serves; device: FairGV softgpu")
    assert (debian.property("Type"), debian.property("KillMode")) == ("notify", "process")
    assert debian.json("fairgv-host status --json")["pid"] == int(debian.property("MainPID"))


def test_it_is_hardened_as_is_told(debian: Debian) -> None:
    said = debian.says("systemd-analyze security --no-pager fairgv.service")
    assert float(said.partition("level for fairgv.service: ")[2].split()[0]) <= MOST_EXPOSED


def test_groups_decide_who_may_what(debian: Debian) -> None:
    debian.says("useradd -G fairgv alice; useradd bob")
    assert debian.as_user("alice", "fairgv-host status").exit_code == 0
    answer = debian.as_user("bob", "fairgv-host status")
    assert answer.exit_code != 0
    assert "fairgv" in answer.output
    assert "fairgv-admin" in debian.as_user("alice", "fairgv-host stop").output
    assert debian.as_user("alice", "fairgv-run -- /programs/vector_add").output.endswith("PASS")


def test_two_guests_share_by_weight(debian: Debian) -> None:
    for name, weight in WEIGHTS.items():
        line = f"fairgv-run --vgpu {name} --weight {weight} -- /programs/steady /root/stop {NR_LAUNCHES}"
        debian.run(f"{line} >/root/{name} 2>&1 &")
    said = [debian.wait_until(f"cat /root/{name}") for name in WEIGHTS]
    assert said == ["running"] * len(WEIGHTS), debian.run("journalctl -u fairgv -o cat | tail -n 40").output
    begin = Look.at(debian)
    end = await_use(debian, begin, STRETCH_NS)
    served = {name: (end.used_ns[name] - begin.used_ns[name]) / weight for name, weight in WEIGHTS.items()}
    assert min(served.values()) / max(served.values()) > CLEARLY_FAIR


def test_top_metrics_and_page_show_both(debian: Debian) -> None:
    top = debian.says("fairgv-host top --once")
    get = "/usr/lib/fairgv/.venv/bin/python -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())'"
    metrics = debian.says(f"{get} http://127.0.0.1:9400/metrics").splitlines()
    for name, weight in WEIGHTS.items():
        assert name in top
        assert f'fairgv_vgpu_weight{{vgpu="{name}"}} {weight}' in metrics
    assert "<title>" in debian.says(f"{get} http://127.0.0.1:9401/")


def test_the_journal_has_fields(debian: Debian) -> None:
    debian.says("fairgv-host set two --weight 2 --limit 90")
    lines = debian.says("journalctl -u fairgv FAIRGV_VGPU=two FAIRGV_EVENT=set -o cat").splitlines()
    assert [line for line in lines if "two" in line]


def test_programs_live_through_restarts_and_deaths(debian: Debian) -> None:
    look = Look.at(debian)
    assert len(look.workers) == len(WEIGHTS)
    for number in range(NR_RESTARTS):
        if number % 2:
            pid = debian.property("MainPID")
            debian.says(f"kill -9 {pid}")
            await_another(debian, pid)
        else:
            debian.says("systemctl restart fairgv.service", 1200)
        look = assert_all_go_on(debian, look)


def test_the_watchdog_ends_one_that_hangs(debian: Debian) -> None:
    before, pid = Look.at(debian), debian.property("MainPID")
    debian.says(f"kill -STOP {pid}")
    await_another(debian, pid)
    assert_all_go_on(debian, before)
    assert "watchdog" in debian.says("journalctl -u fairgv --grep 'Watchdog timeout' -o cat").lower()


def test_an_upgrade_takes_programs_over(debian: Debian) -> None:
    before = Look.at(debian)
    assert debian.says("fairgv-host --version") == f"fairgv-host {VERSION}"
    debian.says(f"{INSTALL} /root/{HOST.name.replace(VERSION, LATER)}", 1200)
    assert debian.says("fairgv-host --version") == f"fairgv-host {LATER}"
    assert_all_go_on(debian, before)


def test_programs_were_right_all_the_time(debian: Debian) -> None:
    debian.says("touch /root/stop")
    debian.wait_until("cat /root/one /root/two", "running\nPASS\nrunning\nPASS".__eq__)


def test_a_purge_leaves_nothing(debian: Debian) -> None:
    debian.says("DEBIAN_FRONTEND=noninteractive apt-get purge -y -q fairgv-host", 1200)
    assert debian.run("ps | grep '[/]usr/lib/fairgv'").output == ""
    left = debian.says(
        "find / -xdev -name '*fairgv*' -not -path '/root/*' -not -path '/proc/*' -not -path '/var/log/*'"
    )
    assert left == ""
