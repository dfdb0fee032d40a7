"""The daemon as a service: its manager's words, its configuration read again, vGPUs that it keeps, users by group. Users and groups are the
kernel's: programs here run as ids that this machine gives to nobody.
"""

import contextlib
import grp
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT, load_as_said
from backend_host.errors import FairGVError
from backend_host.ipc import MAX_CONNECTIONS, Connection
from backend_host.launching import start_in_background, wait_for_end
from tests.children import listening_manager, running
from tests.end_to_end.host import PROGRAMS, WALLS, Host, own_device, stop_host, wait_until
from tests.end_to_end.test_failed_device import UNAVAILABLE, fail

REGION_BYTES = 16 << 20
HEARD_S = 120
USER, OTHER, STRANGER = 70_001, 70_002, 70_003
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def groups() -> tuple[str, str]:
    """Two groups of this machine, which stand for fairgv and fairgv-admin."""
    first, second, *_ = [entry for entry in grp.getgrall() if entry.gr_gid not in (0, *os.getgroups())]
    return first.gr_name, second.gr_name


GROUP, ADMIN_GROUP = groups()


class Service:
    """A daemon with a configuration of its own, in a folder that everybody may pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "config.toml"
        self.kept = folder / "vgpus.d"
        self.kept.mkdir()
        self.state_dir = folder / "state"
        self.host = Host(self.state_dir, "soft")

    def write(self, text: str = "", users_text: str = "") -> None:
        users = f'[users]\ngroup = "{GROUP}"\nadmin_group = "{ADMIN_GROUP}"\n'
        walls = f'[walls]\ncache_dir = "{WALLS.cache_dir}"\n'
        self.file.write_text(f'adopt = "attached"\nnr_warm_workers = 0\n{text}\n{walls}{users}{users_text}')

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in own_device(self.state_dir).items():
                environment.setenv(name, value)
            config = load_as_said(self.file, WALLS.allow_missing, state_dir=self.state_dir, device="soft")
            start_in_background(config)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return host_command(self.state_dir, *arguments)

    def vgpus(self) -> dict[str, Any]:
        return {vgpu["name"]: vgpu for vgpu in self.host.status()["vgpus"]}

    def connect(self) -> Connection:
        return Connection(self.state_dir / "control.sock")


@pytest.fixture
def service() -> Iterator[Service]:
    """Not started. Its folder is not below pytest's, which is closed to others."""
    with tempfile.TemporaryDirectory(prefix="fairgv-service-", ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        service = Service(folder)
        service.write()
        yield service
        with contextlib.suppress(FairGVError):
            stop_host(service.host)


def as_user(code: str, uid: int, groups: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code as that user in these groups. It imports first: this machine's Python may lie where no user looks."""
    gids = [grp.getgrnam(name).gr_gid for name in groups]
    return subprocess.run(
        [sys.executable, "-c", code.replace("BECOME()", BECOME.format(uid=uid, gids=gids)), *arguments],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


BECOME = (
    "os.setgroups({gids}); os.setgid({uid}); os.setuid({uid}); ctypes.CDLL(None).prctl(4, 1)  # of a dumpable process"
)
ASK = """
import ctypes, json, os, sys
from pathlib import Path
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
BECOME()
answers = []
connection = Connection(Path(sys.argv[1]))
for request in json.loads(sys.argv[2]):
    try:
        answers.append(connection.ask(request.pop("op"), **request))
    except FairGVError as error:
        answers.append({"error": str(error)})
print(json.dumps(answers))
"""
HOLD = """
import ctypes, os, sys
from pathlib import Path
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
BECOME()
held = [Connection(Path(sys.argv[1])) for _ in range(int(sys.argv[2]))]
held[-2].ask("status")
try:
    held[-1].ask("status")
except FairGVError as error:
    print(error)
"""
RUN = """
import ctypes, os, shutil, sys
from backend_host import run
BECOME()
sys.exit(run.main(sys.argv[1:]))
"""
COMMAND = """
import ctypes, os, shutil, sys
from backend_host import cli
BECOME()
sys.exit(cli.main(sys.argv[1:]))
"""


def ask_as(service: Service, uid: int, groups: Sequence[str], *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the daemon answers a user on one connection: an answer, or an error, for each request."""
    result = as_user(ASK, uid, groups, str(service.state_dir / "control.sock"), json.dumps(requests))
    assert result.returncode == 0, result.stderr
    answers: list[dict[str, Any]] = json.loads(result.stdout)
    return answers


CHANGES: list[dict[str, Any]] = [
    {"op": "attach", "domain": "vm"},
    {"op": "detach", "domain": "vm"},
    {"op": "set", "name": "mine", "weight": 3},
    {"op": "unban", "name": "mine"},
    {"op": "reload"},
    {"op": "stop"},
]


def test_a_stranger_gets_one_sentence(service: Service) -> None:
    service.start()
    for _ in range(3):
        for request in ({"op": "status"}, {"op": "open"}, {"op": "stop"}):
            [answer] = ask_as(service, STRANGER, [], request)
            assert f"members of the group {GROUP} may look" in answer["error"]
            assert f"usermod -aG {GROUP} {STRANGER}" in answer["error"]
    assert service.vgpus() == {}


def test_a_member_may_look_and_no_more(service: Service) -> None:
    service.start()
    looks: list[dict[str, Any]] = [{"op": "status"}, {"op": "list"}, {"op": "grants"}]
    answers = ask_as(service, USER, [GROUP], *looks, {"op": "open", "name": f"{USER}-mine"}, *CHANGES)
    assert all("error" not in answer for answer in answers[:4])
    assert all(f"only members of the group {ADMIN_GROUP} may do this" in answer["error"] for answer in answers[4:])


def test_an_administrator_may_change_and_knows_no_limits(service: Service) -> None:
    service.start()
    opens: list[dict[str, Any]] = [
        {"op": "open", "name": f"v{number}", "weight": 50, "region_bytes": REGION_BYTES} for number in range(6)
    ]
    answers = ask_as(service, USER, [ADMIN_GROUP], *opens, {"op": "set", "name": "v0", "weight": 3}, {"op": "reload"})
    assert [answer.get("error") for answer in answers] == [None] * 8
    ask_as(service, USER, [ADMIN_GROUP], {"op": "stop"})
    wait_until(lambda: not (service.state_dir / "control.sock").exists(), "it stops")


def test_limits_of_a_user_hold_for_all_vgpus_together(service: Service) -> None:
    service.write(users_text='vgpus = 3\nweight = 5\nmemory_bytes = "4G"\nrequest = 20\n')
    service.start()

    def opened(**arguments: object) -> dict[str, object]:
        return {"op": "open", "region_bytes": REGION_BYTES, **arguments}

    refused = f"ask a member of {ADMIN_GROUP} to raise"
    answers = ask_as(
        service,
        USER,
        [GROUP],
        opened(weight=6),
        opened(request=30),
        opened(memory_bytes="5G"),
        opened(name=f"{USER}-a", weight=4, request=20, memory_bytes="3G"),
        opened(weight=2, memory_bytes="1G"),
        opened(request=1, memory_bytes="1G"),
        opened(memory_bytes="2G"),
        opened(name=f"{USER}-b"),
        opened(name=f"{USER}-c"),
        opened(name=f"{USER}-a", weight=4),
        {"op": "status"},
    )
    for number, sentence in {
        0: "would weigh 6 together, and a user's may weigh 5",
        1: "would request 30 % together, and a user's may request 20 %",
        2: "a user may have 4 GiB of device memory",
        4: "would weigh 6 together",
        5: "would request 21 % together",
        6: "has 1 GiB left",
        8: "would weigh 6 together",
    }.items():
        assert sentence in answers[number]["error"]
        assert refused in answers[number]["error"]
    assert all("error" not in answers[number] for number in (3, 7, 9)), "to join one that is there takes nothing more"
    [_, second] = answers[10]["vgpus"]
    assert second["quota_bytes"] == 1 << 30, "what is left of the user's"


def test_a_hundred_vgpus(service: Service) -> None:
    service.start()
    answers = ask_as(
        service,
        USER,
        [GROUP],
        *({"op": "open", "name": f"{USER}-{number}", "region_bytes": REGION_BYTES} for number in range(100)),
        {"op": "status"},
    )
    *opened, status = answers
    assert [("error" in answer) for answer in opened] == [False] * 4 + [True] * 96
    assert "a user may have 4: join one of them with --vgpu" in opened[50]["error"]
    assert len(status["vgpus"]) == 4
    assert "error" not in ask_as(service, OTHER, [GROUP], {"op": "open", "region_bytes": REGION_BYTES})[0]
    wait_until(lambda: not service.vgpus(), "they go with the connection")


def test_a_vgpu_of_another_user(service: Service) -> None:
    service.start()
    (service.kept / "theirs.toml").write_text(f"user = {OTHER}\nregion_bytes = {REGION_BYTES}\n")
    assert service.command("reload").returncode == 0
    with service.connect() as connection:
        os.close(connection.ask("open", name="roots", region_bytes=REGION_BYTES)["fd"])
        answers = ask_as(service, USER, [GROUP], {"op": "open", "name": "roots"}, {"op": "open", "name": "theirs"})
    assert [answer["error"] for answer in answers] == [
        "the vGPU roots belongs to somebody else (user 0): name another one by --vgpu",
        f"the vGPU theirs belongs to somebody else (user {OTHER}): name another one by --vgpu",
    ]


def test_nobody_takes_the_name_of_a_domain_to_come(service: Service) -> None:
    service.start()
    names = ["web", f"{OTHER}-x", f"{USER}", f"{USER}-x"]
    answers = ask_as(service, USER, [GROUP], *({"op": "open", "name": name} for name in names))
    assert all(f"begins with {USER}-: say --vgpu {USER}-" in answer["error"] for answer in answers[:3])
    assert answers[3]["name"] == f"{USER}-x"


def test_one_user_takes_no_more_connections_than_are_allowed(service: Service) -> None:
    service.start()
    result = as_user(HOLD, USER, [GROUP], str(service.state_dir / "control.sock"), str(MAX_CONNECTIONS + 1))
    assert result.returncode == 0, result.stderr
    assert f"has {MAX_CONNECTIONS} connections to the daemon" in result.stdout
    assert service.host.status()["vgpus"] == []


def test_a_member_runs_a_program_by_weight(service: Service) -> None:
    service.start()
    place, program = ("--state-dir", str(service.state_dir)), ("--", str(PROGRAMS / "vector_add"))
    result = as_user(RUN, USER, [GROUP], *place, "--weight", "2", *program)
    assert result.returncode == 0, result.stderr
    refused = as_user(RUN, USER, [GROUP], *place, "--weight", "9", *program)
    assert refused.returncode == 1
    assert "--weight 9: the vGPUs of 70001 would weigh 9 together" in refused.stderr


def test_without_the_groups_nothing_is_different(service: Service) -> None:
    service.write()
    service.file.write_text(
        service.file.read_text().replace(f'"{GROUP}"', '"nobody-has-it"').replace(f'"{ADMIN_GROUP}"', '"nor-this"')
    )
    service.start()
    assert (service.state_dir / "control.sock").stat().st_mode & 0o777 == 0o600
    result = as_user(COMMAND, USER, [], "--state-dir", str(service.state_dir), "status")
    assert result.returncode == 1
    assert "no permission for" in result.stderr


def test_kept_vgpus_are_there_without_programs(service: Service) -> None:
    (service.kept / "render.toml").write_text(f'weight = 3\nlimit = 50\nuser = {USER}\nregion_bytes = "16M"\n')
    service.start()
    [render] = service.vgpus().values()
    assert (render["name"], render["weight"], render["limit"]) == ("render", 3, 50)
    answers = ask_as(service, USER, [GROUP], {"op": "open", "name": "render"}, {"op": "open"}, {"op": "open"})
    assert all("error" not in answer for answer in answers)
    wait_until(lambda: len(service.vgpus()) == 1, "the others go")
    refused = service.command("detach", "render")
    assert "take it away there, then fairgv-host reload" in refused.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("weight = 0", "weight: a weight is a whole number"),
        ("wait = 1", "unknown key 'wait'"),
        ("user = 'nobody-has-it'", "this host has no user 'nobody-has-it'"),
        ("name = '../x'", "is no name for a vGPU"),
        ("region_bytes = 3", "power of two"),
        ("weight =", "bad.toml"),
        ("name = 'good'", "there is another file for a vGPU called good"),
        ("request = 70", "is more than GPU 0 has left"),
        ("gpu = '7'", "no Gpu of this host is called '7'"),
    ],
)
def test_a_reload_that_is_refused_changes_nothing(service: Service, text: str, sentence: str) -> None:
    good = f"request = 40\nregion_bytes = {REGION_BYTES}\n"
    (service.kept / "good.toml").write_text(good)
    service.write('policy = "elastic"')
    service.start()
    before = service.vgpus()["good"]
    (service.kept / "good.toml").write_text(f"{good}weight = 9\n")
    (service.kept / "bad.toml").write_text(f"region_bytes = {REGION_BYTES}\n{text}\n" if "region" not in text else text)
    service.write('policy = "elastic"\n[vgpu]\nweight = 4\n')
    refused = service.command("reload")
    assert refused.returncode == 1
    assert sentence in refused.stderr
    assert service.vgpus().keys() == {"good"}
    assert service.vgpus()["good"]["weight"] == before["weight"]
    with service.connect() as connection:
        os.close(connection.ask("open", name="new", region_bytes=REGION_BYTES)["fd"])
        assert service.vgpus()["new"]["weight"] == 1, "nor has what others get by default"


def test_a_reload_is_whole(service: Service) -> None:
    """Requests change places: neither order of single changes would do."""
    service.write('policy = "elastic"')
    for name, request in (("a", 70), ("b", 30), ("gone", 0)):
        (service.kept / f"{name}.toml").write_text(f"request = {request}\nregion_bytes = {REGION_BYTES}\n")
    service.start()
    for name, request in (("a", 20), ("b", 60), ("new", 20)):
        (service.kept / f"{name}.toml").write_text(f"request = {request}\nregion_bytes = {REGION_BYTES}\n")
    (service.kept / "gone.toml").unlink()
    service.write('policy = "elastic"\n[limits]\nclients = 3\n[vgpu]\nweight = 4\n')
    done = service.command("reload")
    assert done.returncode == 0, done.stderr
    for line in ("vgpu.weight: 1 -> 4", "limits.clients: 64 -> 3", "vgpus.d.gone: ", "-> none"):
        assert line in done.stdout
    found = service.vgpus()
    assert {name: vgpu["request"] for name, vgpu in found.items()} == {"a": 20, "b": 60, "new": 20}
    assert all(vgpu["weight"] == 4 and vgpu["limits"]["clients"] == 3 for vgpu in found.values())
    assert service.command("reload").stdout == "nothing has changed\n"
    assert service.command("set", "new", "--weight", "9").returncode == 0
    assert "vgpus.d.new: user root, weight 9" in service.command("reload").stdout, "the file overrules whoever set it"
    assert service.vgpus()["new"]["weight"] == 4


def test_what_takes_a_start_is_named(service: Service) -> None:
    service.start()
    service.write('slice_ms = 3\npolicy = "first-come"\nregion_bytes = "32M"')
    refused = service.command("reload")
    assert refused.returncode == 1
    assert "policy, slice_ms: what was changed there takes effect when the daemon is started anew" in refused.stderr
    service.write('region_bytes = "32M"')
    assert service.command("reload").stdout == "region_bytes: 268435456 -> 33554432\n"


def test_a_reload_takes_what_a_start_takes(service: Service) -> None:
    """Of one Gpu, which there is nothing to balance with."""
    (service.kept / "web.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
    service.start()
    (service.kept / "web.toml").write_text(f"weight = 3\nregion_bytes = {REGION_BYTES}\n")
    service.write('balance = "balance"')
    done = service.command("reload")
    assert done.returncode == 0, done.stderr
    assert service.vgpus()["web"]["weight"] == 3
    assert service.command("balance").stdout.startswith("balance: ")
    assert service.command("reload").stdout == "nothing has changed\n"


DEFAULTS = {
    "region_bytes": ("run_region_bytes = 33554432", "run_region_bytes: 0 -> 33554432"),
    "gpu": ('[vgpu]\ngpu = "0"', "vgpu.gpu: '' -> 0"),
    "space": ('[vgpu]\nspace = "one"', "vgpu.space: '' -> one"),
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_what_new_vgpus_get_leaves_those_that_are_there_as_they_are(service: Service, key: str) -> None:
    """Where their files leave it out; at the next start, too."""
    text, change = DEFAULTS[key]
    (service.kept / "web.toml").write_text("")
    service.start()
    with service.connect() as connection:
        os.close(connection.ask("open", name="web")["fd"])
        before = service.vgpus()["web"]
        service.write(text)
        assert change in service.command("reload").stdout
        assert service.command("reload").stdout == "nothing has changed\n"
        assert service.command("restart").returncode == 0
        now = service.vgpus()["web"]
        assert (now[key], now["gpu_number"], now["region_bytes"]) == (before[key], 0, before["region_bytes"])
        assert service.command("reload").stdout == "nothing has changed\n"
        (service.kept / "web.toml").write_text('gpu = "0"\nspace = "other"\nregion_bytes = 67108864\n')
        assert "the vGPU web keeps its " in service.command("reload").stderr, "what it says itself"


def test_a_restart_leaves_a_machines_vgpu_what_its_file_leaves_out(service: Service) -> None:
    """It would be another vGPU otherwise, and its programs would end."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
        memory.truncate(REGION_BYTES)
        (service.kept / "vm.toml").write_text(f'shm = "{memory.name}"\n')
        service.start()
        wait_until(lambda: "vm" in service.vgpus(), "it is served")
        service.write('[vgpu]\nweight = 3\ngpu = "0"')
        assert service.command("restart").returncode == 0
        wait_until(lambda: service.vgpus()["vm"]["weight"] == 3, "it is served by the next one")
        assert service.vgpus()["vm"]["gpu"] == ""


def test_a_kept_vgpu_goes_with_its_last_program(service: Service) -> None:
    file = service.kept / "render.toml"
    file.write_text(f"region_bytes = {REGION_BYTES}\n")
    service.start()
    with service.connect() as connection:
        os.close(connection.ask("open", name="render")["fd"])
        file.write_text(f"region_bytes = {2 * REGION_BYTES}\n")
        assert "the vGPU render keeps its region_bytes while it is there" in service.command("reload").stderr
        file.unlink()
        assert service.command("reload").returncode == 0
        assert service.vgpus().keys() == {"render"}
        file.write_text(f"region_bytes = {REGION_BYTES}\n")
        assert "end its programs first" in service.command("reload").stderr
    wait_until(lambda: not service.vgpus(), "it goes")
    assert service.command("reload").returncode == 0
    assert service.vgpus().keys() == {"render"}


def test_events_outlive_the_daemon(service: Service) -> None:
    service.start()
    (service.kept / "render.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
    assert service.command("reload").returncode == 0
    assert service.command("set", "render", "--weight", "5").returncode == 0
    ask_as(service, USER, [GROUP], {"op": "set", "name": "render", "weight": 9})
    ask_as(service, STRANGER, [], {"op": "status"})
    stop_host(service.host)
    service.start()
    answer = as_user(COMMAND, USER, [GROUP], "--state-dir", str(service.state_dir), "events", "--json")
    records = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(record["event"], record["uid"]) for record in records] == [
        ("reload", 0),
        ("set", 0),
        ("refusal", USER),
        ("refusal", STRANGER),
        ("stop", 0),
    ]
    assert (records[0]["old"], records[0]["new"]["vgpus.d.render"]["weight"]) == ({"vgpus.d.render": None}, 1)
    assert [records[1][key]["weight"] for key in ("old", "new")] == [1, 5]
    assert records[1]["vgpu"] == records[2]["vgpu"] == "render"
    assert "WARNING fairgv.events: refusal by user" in service.host.log()


def test_its_manager_hears_of_it(service: Service) -> None:
    """In the foreground, as a unit starts it; a reload by a signal, a stop by another."""
    notify = service.folder / "notify"
    with listening_manager(notify) as words:
        command = ["--state-dir", str(service.state_dir), "start", "--foreground", "--device", "soft"]
        command += ["--config", str(service.file), *(f"--allow-missing-wall={wall}" for wall in WALLS.allow_missing)]
        environment = {**os.environ, **own_device(service.state_dir), "PYTHONPATH": str(PACKAGE_ROOT)}
        with running(
            [sys.executable, "-m", "backend_host.cli", *command],
            stderr=subprocess.PIPE,
            env={**environment, "NOTIFY_SOCKET": str(notify), "WATCHDOG_USEC": "2000000"},
        ) as child:
            while not (word := words.get(timeout=HEARD_S)).startswith("READY=1"):
                pass
            assert word.startswith("READY=1\nSTATUS=serves; device: ")
            while words.get(timeout=HEARD_S) != "WATCHDOG=1":
                pass
            (service.kept / "new.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
            child.send_signal(signal.SIGHUP)
            wait_until(lambda: service.vgpus().keys() == {"new"}, "the signal is followed")
            (service.kept / "bad.toml").write_text("weight = 0")
            child.send_signal(signal.SIGHUP)
            assert child.stderr is not None
            assert any("the configuration is as it was" in line for line in iter(child.stderr.readline, ""))
            child.send_signal(signal.SIGTERM)
            while not (word := words.get(timeout=HEARD_S)).startswith("STOPPING=1"):
                pass
            assert "leaves programs to the next daemon" in word, "it may be a restart"
            assert child.wait() == 0


def listed(service: Service) -> dict[str, dict[str, Any]]:
    entries = json.loads(service.command("list", "--json").stdout)
    return {entry["name"]: entry for entry in entries}


def test_names_of_a_device_that_has_failed_keep_nobody_from_the_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told, and hold again once the device is back."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    (service.kept / "web.toml").write_text(f'gpu = "1"\nregion_bytes = {REGION_BYTES}\n')
    service.write('devices = [0, 1]\n[vgpu]\ngpu = "1"\n[gpu.1]\nslice_ms = 5\n')
    service.start()
    assert service.vgpus()["web"]["gpu_number"] == 1
    assert service.host.status()["troubles"] == []
    fail(service.host, 1, UNAVAILABLE)
    assert service.command("stop").returncode == 0
    service.start()
    *names, web = service.host.status()["troubles"]
    assert [name.partition(":")[0] for name in names] == ["[gpu.1]", "devices", "[vgpu] gpu"]
    assert web == "vGPU web is not served: no Gpu of this host is called '1'; see: fairgv-host devices"
    assert all(name in service.host.log() for name in names)
    shown = " ".join(service.command("status").stdout.split())
    assert web in shown
    assert (listed(service)["web"]["is_served"], web.endswith(listed(service)["web"]["why_not"])) == (False, True)
    (service.kept / "other.toml").write_text(f'gpu = "0"\nregion_bytes = {REGION_BYTES}\n')
    reloaded = service.command("reload").stdout
    assert "vgpus.d.other: none -> " in reloaded, "what was wrong before stands in the way of nothing else"
    assert "vgpus.d.web" not in reloaded
    assert service.vgpus().keys() == {"other"}
    fail(service.host, 1, 0)
    assert service.command("restart").returncode == 0
    assert service.host.status()["troubles"] == []
    assert service.vgpus().keys() == {"other", "web"}


def test_a_kept_vgpu_that_finds_no_room_keeps_no_daemon_from_its_start(service: Service) -> None:
    (service.kept / "web.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
    service.start()
    assert service.command("drain", "0").returncode == 1, "it has nowhere to go"
    assert service.command("stop").returncode == 0
    service.start()
    why = listed(service)["web"]["why_not"]
    assert why == "GPU 0 is drained (until fairgv-host undrain 0)"
    assert f"vGPU web is not served: {why}" in service.host.log()
    assert service.command("reload").stdout == f"nothing has changed\nvGPU web is not served: {why}\n"
    (service.kept / "new.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
    refused = service.command("reload")
    assert (refused.returncode, why in refused.stderr) == (1, True), "of one that is new"
    assert service.command("undrain", "0").returncode == 0
    assert service.vgpus().keys() == {"web"}
    assert listed(service)["web"]["is_served"]
    assert service.command("reload").returncode == 0
    assert service.vgpus().keys() == {"web", "new"}


def test_one_that_goes_makes_room_for_one_that_waits(service: Service) -> None:
    service.start()
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
        memory.truncate(REGION_BYTES)
        assert service.command("attach", "vm", "--shm", memory.name, "--request", "60").returncode == 0
        (service.kept / "web.toml").write_text(f"region_bytes = {REGION_BYTES}\nrequest = 60\n")
        assert service.command("restart").returncode == 0
        assert "40 %, as 60 % are requested (vm 60 %)" in listed(service)["web"]["why_not"]
        assert service.command("detach", "vm").returncode == 0
        assert listed(service)["web"]["is_served"]


def test_what_is_kept_outlives_the_daemon(service: Service) -> None:
    """Its file is read again, and who keeps it no more lets it go; its account goes on."""
    for name in ("stays", "goes"):
        (service.kept / f"{name}.toml").write_text(f"region_bytes = {REGION_BYTES}\nweight = 2\n")
    service.start()
    assert service.host.guest("matrix_mul", options=("--vgpu", "stays")).returncode == 0
    before = service.vgpus()["stays"]
    assert before["used_ns"] > 0
    pid = int(service.host.status()["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    (service.kept / "goes.toml").unlink()
    (service.kept / "stays.toml").write_text(f"region_bytes = {REGION_BYTES}\nweight = 3\n")
    service.start()
    [(name, vgpu)] = service.vgpus().items()
    assert (name, vgpu["weight"], vgpu["used_ns"]) == ("stays", 3, before["used_ns"])
    assert vgpu["totals"]["nr_clients"] == before["totals"]["nr_clients"] == 1
    assert service.host.guest("vector_add", options=("--vgpu", "stays")).returncode == 0
    assert service.vgpus().keys() == {"stays"}


def test_who_may_start_the_daemon_anew(service: Service) -> None:
    (service.kept / "kept.toml").write_text(f"region_bytes = {REGION_BYTES}\n")
    service.start()
    with Connection(service.state_dir / "control.sock") as connection:
        os.close(connection.ask("open", name="kept")["fd"])
        refused = as_user(COMMAND, USER, [ADMIN_GROUP], "--state-dir", str(service.state_dir), "restart")
        assert refused.returncode == 1
        assert "only the daemon's own user may start it anew" in refused.stderr
        assert service.command("restart").returncode == 0
        assert service.vgpus().keys() == {"kept"}
