"""The daemon as a service: its manager's words, its configuration read again, vGPUs that it keeps."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.ipc import Connection
from backend_host.launching import wait_for_end
from tests.children import listening_manager, running
from tests.end_to_end.host import WALLS, own_device, stop_host, wait_until
from tests.end_to_end.service_host import (
    ADMIN_GROUP,
    COMMAND,
    GROUP,
    IS_ROOT_NEEDED,
    REGION_BYTES,
    STRANGER,
    USER,
    Service,
    as_user,
    ask_as,
)
from tests.end_to_end.test_failed_device import UNAVAILABLE, fail

HEARD_S = 120
pytestmark = IS_ROOT_NEEDED


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
    assert (
        service.command("set", "render", "--weight", "5").stdout
        == "render has that already: weight 5, memory no limit\n"
    ), "no event"
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
